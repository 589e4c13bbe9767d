//! The controller's end with an independent switch: `ovs-vswitchd` with a dummy datapath, which
//! needs neither root nor the kernel module.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests")]

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, process};

use tapswitch_channel::*;
use tapswitch_openflow::multipart::*;
use tapswitch_openflow::*;
use tapswitch_wire::EtherType;

#[test]
fn ovs_is_described_and_programmed() {
    let Some(ovs) = Ovs::start() else { return };
    let mut controller = Controller::connect(&ovs);
    assert_eq!(controller.features.datapath_id, DatapathId(0x42));
    assert!(controller.features.capabilities.contains(Capabilities::GROUP_STATS));

    let ports = controller.multipart(MultipartRequestBody::PortDesc);
    let MultipartReplyBody::PortDesc(ports) = ports else { panic!("{ports:?}") };
    let names: Vec<_> = ports.iter().map(|port| port.name.to_string()).collect();
    assert!(names.contains(&"p1".to_owned()) && names.contains(&"br0".to_owned()), "{names:?}");

    let group = controller.send(Body::GroupMod(group()));
    let flow = controller.send(Body::FlowMod(flow(1)));
    controller.barrier();
    assert_eq!(controller.errors, [], "group {group} and flow {flow} are taken");

    let groups = controller.multipart(MultipartRequestBody::GroupDesc);
    let MultipartReplyBody::GroupDesc(groups) = groups else { panic!("{groups:?}") };
    assert_eq!(groups.len(), 1);
    assert_eq!((groups[0].group_type, &groups[0].buckets), (GroupType::All, &group_buckets()));

    let request = MultipartRequestBody::Flow(FlowStatsRequest::default());
    let flows = controller.multipart(request);
    let MultipartReplyBody::Flow(flows) = flows else { panic!("{flows:?}") };
    assert_eq!(flows.len(), 1);
    assert_eq!(flows[0].instructions, self::flow(1).instructions);
    assert_eq!(flows[0].match_fields, self::flow(1).match_fields);
}

#[test]
fn ovs_refuses_what_is_wrong() {
    let Some(ovs) = Ovs::start() else { return };
    let mut controller = Controller::connect(&ovs);
    let mut lacks_group = flow(1);
    lacks_group.instructions = vec![Instruction::ApplyActions(vec![Action::Group(GroupId(99))])];
    let xid = controller.send(Body::FlowMod(lacks_group));
    controller.barrier();
    assert_eq!(controller.errors, [(xid, ErrorKind::OFPBAC_BAD_OUT_GROUP)]);
}

#[test]
fn thousands_of_flows_come_back_in_one_reply() {
    let Some(ovs) = Ovs::start() else { return };
    let mut controller = Controller::connect(&ovs);
    controller.send(Body::GroupMod(group()));
    for cookie in 1..=3000 {
        controller.send(Body::FlowMod(flow(cookie)));
    }
    controller.barrier();
    assert_eq!(controller.errors, []);
    let request = MultipartRequestBody::Flow(FlowStatsRequest::default());
    let flows = controller.multipart(request);
    let MultipartReplyBody::Flow(flows) = flows else { panic!("{flows:?}") };
    let mut cookies: Vec<_> = flows.iter().map(|flow| flow.cookie).collect();
    cookies.sort_unstable();
    assert_eq!(cookies, (1..=3000).collect::<Vec<_>>());
}

#[test]
fn ovs_describes_all_that_it_has() {
    let Some(ovs) = Ovs::start() else { return };
    let mut controller = Controller::connect(&ovs);
    for body in [
        MultipartRequestBody::Desc,
        MultipartRequestBody::Aggregate(FlowStatsRequest::default()),
        MultipartRequestBody::Table,
        MultipartRequestBody::PortStats(PortNo::ANY),
        MultipartRequestBody::Group(GroupId::ALL),
        MultipartRequestBody::GroupFeatures,
        MultipartRequestBody::Meter(METER_ALL),
        MultipartRequestBody::MeterConfig(METER_ALL),
        MultipartRequestBody::MeterFeatures,
        MultipartRequestBody::TableFeatures(vec![]),
    ] {
        let kind = body.kind();
        assert_eq!(controller.multipart(body).kind(), kind);
    }
}

/// Entries that differ only in their cookie and in-port.
fn flow(cookie: u64) -> FlowMod {
    FlowMod {
        cookie,
        priority: 100,
        match_fields: Match::new()
            .with(Oxm::InPort(PortNo(u32::try_from(cookie).unwrap())))
            .with(Oxm::EthType(EtherType::IPV4))
            .with(Oxm::VlanVid(Masked::with_mask(VID_PRESENT, VID_PRESENT))),
        instructions: vec![Instruction::ApplyActions(vec![
            Action::PushVlan(EtherType::SERVICE_VLAN),
            Action::SetField(Oxm::VlanVid(Masked::exact(VID_PRESENT | 7))),
            Action::Group(GroupId(5)),
        ])],
        ..FlowMod::new(FlowModCommand::Add)
    }
}

fn group() -> GroupMod {
    GroupMod {
        command: GroupModCommand::Add,
        group_type: GroupType::All,
        group_id: GroupId(5),
        buckets: group_buckets(),
    }
}

fn group_buckets() -> Vec<Bucket> {
    let bucket = |port| Bucket::new(vec![Action::Output { port: PortNo(port), max_len: 0 }]);
    vec![bucket(1), bucket(2)]
}

/// A connection with its socket.
struct Controller {
    connection: ControllerConnection,
    stream: UnixStream,
    features: FeaturesReply,
    /// Errors so far.
    errors: Vec<(u32, ErrorKind)>,
}

impl Controller {
    fn connect(ovs: &Ovs) -> Self {
        let stream = UnixStream::connect(ovs.directory.join("br0.mgmt")).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut controller = Self {
            connection: ControllerConnection::new(Config::default(), Instant::now()),
            stream,
            features: FeaturesReply {
                datapath_id: DatapathId(0),
                n_buffers: 0,
                n_tables: 0,
                auxiliary_id: 0,
                capabilities: Capabilities::empty(),
            },
            errors: Vec::new(),
        };
        match controller.event() {
            ControllerEvent::Ready { features } => controller.features = features,
            other => panic!("{other:?}"),
        }
        controller
    }

    fn send(&mut self, body: Body) -> u32 {
        self.connection.send(body).unwrap()
    }

    fn barrier(&mut self) {
        let xid = self.send(Body::BarrierRequest);
        assert_eq!(self.reply(xid), Body::BarrierReply);
    }

    fn multipart(&mut self, body: MultipartRequestBody) -> MultipartReplyBody {
        let xid = self.send(Body::MultipartRequest(MultipartRequest::new(body)));
        match self.reply(xid) {
            Body::MultipartReply(reply) => reply.body,
            other => panic!("{other:?}"),
        }
    }

    /// The answer to a request; errors meanwhile are recorded.
    fn reply(&mut self, request: u32) -> Body {
        loop {
            match self.event() {
                ControllerEvent::Reply { xid, body } if xid == request => return body,
                ControllerEvent::Error { xid, error } => self.errors.push((xid, error.kind)),
                ControllerEvent::Message(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    fn event(&mut self) -> ControllerEvent {
        let mut buffer = [0; 16_384];
        loop {
            let event = self.connection.poll_event();
            let len = self.connection.poll_transmit().len();
            self.stream.write_all(self.connection.poll_transmit()).unwrap();
            self.connection.handle_transmitted(len, Instant::now());
            if let Some(event) = event {
                return event;
            }
            match self.stream.read(&mut buffer).expect("an answer in time") {
                0 => self.connection.handle_eof(),
                len => self.connection.handle_bytes(&buffer[..len], Instant::now()),
            }
        }
    }
}

/// An Open vSwitch in its own directory, ended on drop.
struct Ovs {
    directory: PathBuf,
    children: Vec<Child>,
}

impl Ovs {
    /// A bridge `br0` with two ports; `None` if Open vSwitch is not installed.
    fn start() -> Option<Self> {
        let schema = Path::new("/usr/share/openvswitch/vswitch.ovsschema");
        let has_all = ["ovsdb-tool", "ovsdb-server", "ovs-vsctl", "ovs-vswitchd"]
            .iter()
            .all(|name| Command::new(name).arg("--version").output().is_ok());
        if !has_all || !schema.exists() {
            println!("SKIP: Open vSwitch is not there; install openvswitch-switch for this test");
            return None;
        }
        let mut ovs = Self { directory: unique_directory(), children: Vec::new() };
        let database = ovs.path("conf.db");
        let socket = ovs.path("db.sock");
        ovs.run("ovsdb-tool", &["create", &database, schema.to_str().unwrap()]);
        ovs.spawn("ovsdb-server", &[&format!("--remote=punix:{socket}"), &database]);
        ovs.wait_for("db.sock");
        let database = format!("unix:{socket}");
        ovs.run("ovs-vsctl", &[&format!("--db={database}"), "--no-wait", "init"]);
        ovs.spawn("ovs-vswitchd", &["--enable-dummy=override", &database]);
        let bridge = "add-br br0 -- set bridge br0 datapath_type=dummy fail-mode=secure \
                      protocols=OpenFlow13 other-config:datapath-id=0000000000000042 \
                      -- add-port br0 p1 -- set interface p1 type=dummy ofport_request=1 \
                      -- add-port br0 p2 -- set interface p2 type=dummy ofport_request=2";
        let database = format!("--db={database}");
        let arguments: Vec<_> =
            [database.as_str(), "--timeout=20"].into_iter().chain(bridge.split(' ')).collect();
        ovs.run("ovs-vsctl", &arguments);
        ovs.wait_for("br0.mgmt");
        Some(ovs)
    }

    fn path(&self, name: &str) -> String {
        self.directory.join(name).to_str().unwrap().to_owned()
    }

    fn command(&self, name: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(name);
        command.args(arguments).current_dir(&self.directory);
        for variable in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR"] {
            command.env(variable, &self.directory);
        }
        command
    }

    fn run(&self, name: &str, arguments: &[&str]) {
        let output = self.command(name, arguments).output().unwrap();
        assert!(output.status.success(), "{name}: {output:?}");
    }

    fn spawn(&mut self, name: &str, arguments: &[&str]) {
        let child = self
            .command(name, arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        self.children.push(child.unwrap());
    }

    /// Waits until a socket exists.
    fn wait_for(&self, name: &str) {
        let end = Instant::now() + Duration::from_secs(20);
        while UnixStream::connect(self.directory.join(name)).is_err() {
            assert!(Instant::now() < end, "{name} does not come");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Ovs {
    fn drop(&mut self) {
        for child in self.children.iter_mut().rev() {
            // It may have ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// A directory for one switch, with a short name: socket paths are limited to 108 bytes.
fn unique_directory() -> PathBuf {
    use std::sync::atomic::{AtomicU32, Ordering};
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let directory = env::temp_dir().join(format!("tapswitch-ovs-{}-{count}", process::id()));
    fs::create_dir_all(&directory).unwrap();
    directory
}
