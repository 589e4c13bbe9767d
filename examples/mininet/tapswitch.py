"""tapswitch in Mininet: its switch and its controller, by these names on mn's command line.

    mn --custom examples/mininet/tapswitch.py --switch tapswitch --controller tapswitch \\
        --topo linear,3

    mininet> pingall
    mininet> sh tapswitch policy add all --monitor s3-eth1
    mininet> h3 tcpdump -ni h3-eth0

Options are as in `--switch tapswitch,fail_mode=standalone`. The binary is the one of
the environment variable TAPSWITCH, or `tapswitch` on the PATH. What the programs say is in
/tmp/tapswitch-NAME.log.
"""

import json
import os
import signal
import subprocess
import time

from mininet.log import error
from mininet.node import Controller, Switch
from mininet.util import errRun

BINARY = os.environ.get('TAPSWITCH', 'tapswitch')


class Program:
    """A tapswitch process in the background, for a node of Mininet."""

    def __init__(self, node, arguments):
        self.socket = '/run/tapswitch/%s.sock' % node.name
        command = [BINARY] + arguments + ['--socket', self.socket]
        with open('/tmp/tapswitch-%s.log' % node.name, 'w', encoding='utf-8') as log:
            self.process = node.popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def ask(self, *command):
        """Runs a command on its management socket and returns the output."""
        out, err, _code = errRun(BINARY, *command, '--socket', self.socket)
        return out or err

    def wait(self):
        """Waits until the management socket exists. Returns whether the process runs."""
        while self.process.poll() is None:
            if os.path.exists(self.socket):
                return True
            time.sleep(0.01)
        return False

    def stop(self):
        """Stops the process, which removes its devices and sockets."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self.process.wait()


class TapswitchSwitch(Switch):
    """A tapswitch switch, whose ports are the links of Mininet."""

    def __init__(self, name, fail_mode='secure', options='', **params):
        """fail_mode: behaviour while no controller answers (secure, standalone)
           options: port options, such as 'mtu=9000,offload=off'"""
        Switch.__init__(self, name, **params)
        self.fail_mode = fail_mode
        self.options = ',' + options if options else ''
        self.program = None

    @classmethod
    def setup(cls):
        """Exits with a message if tapswitch is not installed."""
        _out, _err, code = errRun(BINARY, '--version')
        if code:
            error('%s cannot be run; put tapswitch on the PATH (make install), '
                  'or its path into TAPSWITCH\n' % BINARY)
            raise SystemExit(1)

    def start(self, controllers):
        """Starts the switch with its current links as ports."""
        arguments = ['switch', '--name', self.name, '--datapath-id', '0x' + self.dpid,
                     '--fail-mode', self.fail_mode]
        for controller in controllers:
            arguments += ['--controller', 'tcp:%s:%d' % (controller.IP(), controller.port)]
        if self.listenPort:
            arguments += ['--listen', 'tcp:127.0.0.1:%d' % self.listenPort]
        for interface in self.intfList():
            if self.ports[interface] and not interface.IP():
                arguments += ['--port', self.port(interface)]
        self.program = Program(self, arguments)
        if not self.program.wait():
            error('%s did not start; see /tmp/tapswitch-%s.log\n' % (self.name, self.name))

    def stop(self, deleteIntfs=True):
        """Ends it."""
        if self.program:
            self.program.stop()
        super().stop(deleteIntfs)

    def connected(self):
        """Whether a controller answers."""
        if self.fail_mode == 'standalone':
            return True
        answer = self.program.ask('show', 'switch', '--json')
        try:
            return any(peer['connected'] for peer in json.loads(answer)['controllers'])
        except ValueError:
            return False

    def attach(self, intf):
        """Adds a link as a port."""
        interface = self.nameToIntf.get(intf, intf)
        self.cmd('ip link set %s up' % interface)
        error(self.program.ask('port', 'add', self.port(interface)))

    def detach(self, intf):
        """Removes the port of a link."""
        interface = self.nameToIntf.get(intf, intf)
        error(self.program.ask('port', 'remove', str(self.ports[interface])))

    def dpctl(self, *args):
        """`dpctl ports` and so on: the output of `tapswitch show`."""
        return self.program.ask('show', *args)

    def port(self, interface):
        """The port argument for an interface."""
        return '%d=netdev:%s%s' % (self.ports[interface], interface, self.options)


class TapswitchController(Controller):
    """A tapswitch controller, which does not store policies."""

    def __init__(self, name, rest='127.0.0.1:8653', **params):
        """rest: address of the page and the REST API, or 'off'"""
        self.rest = rest
        self.program = None
        Controller.__init__(self, name, **params)

    def start(self):
        """Starts it."""
        endpoint = 'tcp:%s:%d' % (self.IP(), self.port)
        arguments = ['controller', '--listen', endpoint, '--store', 'none', '--rest', self.rest]
        self.program = Program(self, arguments)
        if not self.program.wait():
            error('%s did not start; see /tmp/tapswitch-%s.log\n' % (self.name, self.name))

    def stop(self, *args, **kwargs):
        """Ends it."""
        if self.program:
            self.program.stop()
        self.program = None
        # Skips Controller.stop, which would kill a job of the node's shell.
        super(Controller, self).stop(*args, **kwargs)

    @classmethod
    def isAvailable(cls):
        """Whether tapswitch is installed."""
        return errRun(BINARY, '--version')[2] == 0


switches = {'tapswitch': TapswitchSwitch}
controllers = {'tapswitch': TapswitchController}
