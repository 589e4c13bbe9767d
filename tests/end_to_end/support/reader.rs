//! A host that is a program at the far end of a tap device, and reads frames on demand.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tapswitch_netlink::{Netlink, QdiscSpec};
use tapswitch_tap as tap;
use tapswitch_wire::MacAddr;

use super::{Capture, Host, Lab, PATIENCE, until};

/// The program. The kernel holds few frames for it; beyond that the switch gets ENOBUFS.
pub(crate) struct Reader {
    queue: tap::Queue,
    pub(crate) mac: MacAddr,
    number: u8,
    buf: Vec<u8>,
}

impl Reader {
    /// Creates the device and joins it to port `number` with these options, so that the controller
    /// knows it there.
    pub(crate) fn join(lab: &Lab, number: u8, options: &str) -> Self {
        let name = format!("r{number}");
        let config = tap::Config::new(name.parse().unwrap()).net_header(tap::HeaderLen::None);
        let device = lab.room.enter(|| tap::Device::create(&config)).unwrap().unwrap();
        let mut netlink = Netlink::open(&lab.room).unwrap();
        netlink.set_txqueuelen(&name, RING_LEN).unwrap();
        // Otherwise frames wait, and are dropped, where the switch does not see it.
        netlink.set_qdisc(&name, &QdiscSpec::new("noqueue")).unwrap();
        netlink.set_up(&name).unwrap();
        let mac = MacAddr([2, 0, 0, 0, 0, number]);
        let queue = device.into_queues().remove(0);
        let reader = Self { queue, mac, number, buf: vec![0; tap::RECV_BUF_LEN] };
        reader.attach(lab, options);
        reader
    }

    /// Joins the device to the port again, and announces it to the controller.
    pub(crate) fn attach(&self, lab: &Lab, options: &str) {
        let number = self.number;
        lab.switch_says(&["port", "add", &format!("{number}=netdev:r{number}{options}")]);
        until("the port is up", || lab.port(number)["state"] == "up");
        let ip = Ipv4Addr::new(10, 0, 0, number);
        let is_known = || lab.knows(&self.mac.to_string(), &ip.to_string());
        until("the controller knows the reader", || {
            self.send(&self.announcement(ip));
            is_known()
        });
    }

    /// Sends a frame into the switch.
    pub(crate) fn send(&self, frame: &[u8]) {
        self.queue.send(frame).unwrap();
    }

    /// Numbers of the waiting frames, in order of arrival.
    pub(crate) fn numbers(&mut self) -> Vec<u32> {
        let mut numbers = Vec::new();
        while let Some(len) = self.queue.recv(&mut self.buf).unwrap() {
            numbers.extend(number_in(&self.buf[..len], self.mac));
        }
        numbers
    }

    /// Numbers of the frames that arrive within `time`.
    pub(crate) fn numbers_for(&mut self, time: Duration) -> Vec<u32> {
        let (mut numbers, end) = (self.numbers(), Instant::now() + time);
        while Instant::now() < end {
            thread::sleep(PAUSE);
            numbers.extend(self.numbers());
        }
        numbers
    }

    /// An ARP announcement (RFC 5227 §2.3).
    fn announcement(&self, ip: Ipv4Addr) -> Vec<u8> {
        let head = [&[0xff; 6][..], &self.mac.0, &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1]].concat();
        [&head[..], &self.mac.0, &ip.octets(), &[0; 6], &ip.octets()].concat()
    }
}

/// Frame `number`, of a type that is never joined to trains (IEEE 802 local experimental).
pub(crate) fn numbered(to: MacAddr, from: MacAddr, number: u32) -> Vec<u8> {
    let mut frame = [&to.0[..], &from.0, &TYPE, &number.to_be_bytes()].concat();
    frame.resize(60 + number as usize * 37 % 1400, number.to_be_bytes()[3]);
    frame
}

/// The number of such a frame, which must be unchanged.
pub(crate) fn number_in(frame: &[u8], to: MacAddr) -> Option<u32> {
    let is_one = frame.len() >= 60 && frame[..6] == to.0 && frame[12..14] == TYPE;
    let number = is_one.then(|| u32::from_be_bytes(frame[14..18].try_into().unwrap()))?;
    let from = MacAddr(frame[6..12].try_into().unwrap());
    assert_eq!(frame, numbered(to, from, number), "frame {number} was changed on its way");
    Some(number)
}

/// Sends numbered frames to one address in the background, without regard to their delivery.
pub(crate) struct Feed {
    thread: JoinHandle<()>,
    stop: Arc<AtomicBool>,
    hastens: Arc<AtomicBool>,
    next: Arc<AtomicU32>,
}

impl Feed {
    /// From frame `first` on.
    pub(crate) fn start(from: &Host, to: MacAddr, first: u32) -> Self {
        let (source, mac) = (Capture::open(from), from.mac());
        let [stop, hastens] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
        let next = Arc::new(AtomicU32::new(first));
        let (told, in_haste, counter) = (stop.clone(), hastens.clone(), next.clone());
        let thread = thread::spawn(move || {
            // A test that failed elsewhere does not stop it.
            let end = Instant::now() + PATIENCE;
            while !told.load(Ordering::Relaxed) && Instant::now() < end {
                let number = counter.load(Ordering::Relaxed);
                if source.try_send(&numbered(to, mac, number)) {
                    counter.store(number + 1, Ordering::Relaxed);
                }
                if !in_haste.load(Ordering::Relaxed) {
                    thread::sleep(PAUSE);
                }
            }
        });
        Self { thread, stop, hastens, next }
    }

    /// Sends as fast as it can from now on.
    pub(crate) fn in_haste(self) -> Self {
        self.hastens.store(true, Ordering::Relaxed);
        self
    }

    /// The number of the next frame.
    pub(crate) fn next(&self) -> u32 {
        self.next.load(Ordering::Relaxed)
    }

    /// Stops it; returns the number of the frame that would be next.
    pub(crate) fn finish(self) -> u32 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
        self.next.load(Ordering::Relaxed)
    }
}

/// Frames that the kernel holds for the program.
const RING_LEN: u32 = 20;
const TYPE: [u8; 2] = [0x88, 0xb5];
/// A moderate rate: other tests need the processor too.
const PAUSE: Duration = Duration::from_micros(200);
