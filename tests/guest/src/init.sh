#!/bin/busybox sh
# The first process of a guest: prepares the system, runs the program, reports its exit status.
#
# ttyS0 is the console, ttyS1 the program's output, ttyS2 reports to the rig: lines of
# `started`, `passed KEY` (by tests), `exit STATUS`, or `broken WHY`.
export PATH=/bin:/sbin:/usr/bin:/usr/sbin HOME=/root TMPDIR=/tmp

end() {
    echo "$*" >/dev/ttyS2
    poweroff -f
}

mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
mount -t bpf bpf /sys/fs/bpf 2>/dev/null
stty -F /dev/ttyS1 raw -echo
stty -F /dev/ttyS2 raw -echo
ip link set lo up

for module in $(cat /guest/modules); do
    insmod "/guest/$module.ko" || end "broken insmod $module"
done

if [ -e /guest/shell ]; then
    setsid cttyhack sh </dev/ttyS0 >/dev/ttyS0 2>&1
else
    echo started >/dev/ttyS2
    sh /guest/run </dev/null >/dev/ttyS1 2>&1
fi
end "exit $?"
