//! Tests of sessions with a VMM of our own.

use std::cell::Cell;
use std::os::fd::{AsFd, AsRawFd};
use std::rc::Rc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserDirtyLogRegion, VhostUserMemoryRegionInfo, VringConfigData};
use vmm_sys_util::eventfd::EventFd;

use super::*;
use crate::net::Undelivered;
use crate::test_guest::{BASE, BUFFERS, Buffer, Driver, Guest, LEN};

/// A VMM with a guest, and the session that serves it.
struct Vmm {
    device: Arc<Device>,
    frontend: Frontend,
    guest: Guest,
    driver: Driver,
    kick: EventFd,
    call: EventFd,
    /// The last reported status.
    status: Arc<Mutex<Status>>,
    session: JoinHandle<SessionEnd>,
}

impl Vmm {
    fn connect() -> Self {
        Self::connect_to(Device::new(2).unwrap(), modern())
    }

    fn connect_to(device: Arc<Device>, features: Features) -> Self {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let serving = device.clone();
        let status = Arc::new(Mutex::default());
        let told = status.clone();
        let session = std::thread::spawn(move || {
            serving.serve(theirs, |news| match news {
                News::Status(status) => *lock(&told) = status,
                News::Announce(station) => panic!("{station:?}"),
            })
        });
        let mut frontend = Frontend::from_stream(ours, 4);
        frontend.set_owner().unwrap();
        assert_eq!(frontend.get_features().unwrap(), Features::OFFERED.bits());
        let protocol = frontend.get_protocol_features().unwrap();
        frontend.set_protocol_features(protocol).unwrap();
        assert_eq!(frontend.get_queue_num().unwrap(), 2);
        frontend.set_features(features.bits()).unwrap();
        let (kick, call) = (EventFd::new(0).unwrap(), EventFd::new(libc::EFD_NONBLOCK).unwrap());
        let (guest, driver) = (Guest::new(), Driver::new(8, features.ring()));
        Self { device, frontend, guest, driver, kick, call, status, session }
    }

    /// Starts the queue on which the guest sends, with the driver's ring.
    fn start(&mut self) {
        self.share(0, LEN);
        self.start_ring(1, &self.driver.place());
        eventually("the ring runs", || self.queue().lock().is_some());
    }

    /// Starts queue `index` with a ring at `place`.
    fn start_ring(&self, index: usize, place: &RingPlace) {
        self.start_disabled_ring(index, place);
        self.frontend.clone().set_vring_enable(index, true).unwrap();
    }

    fn start_disabled_ring(&self, index: usize, place: &RingPlace) {
        let frontend = self.frontend.clone();
        frontend.set_vring_num(index, place.size).unwrap();
        self.describe_as(index, place, 0);
        frontend.set_vring_base(index, 0).unwrap();
        frontend.set_vring_call(index, &self.call).unwrap();
        frontend.set_vring_kick(index, &self.kick).unwrap();
    }

    /// Sends the addresses of the ring, with these flags.
    fn describe(&self, flags: u32) {
        self.describe_as(1, &self.driver.place(), flags);
    }

    fn describe_as(&self, index: usize, place: &RingPlace, flags: u32) {
        let ring = VringConfigData {
            queue_max_size: place.size,
            queue_size: place.size,
            flags,
            desc_table_addr: place.descriptors,
            avail_ring_addr: place.driver,
            used_ring_addr: place.device,
            log_addr: None,
        };
        self.frontend.set_vring_addr(index, &ring).unwrap();
    }

    fn share(&self, offset: u64, len: u64) {
        let region = VhostUserMemoryRegionInfo {
            guest_phys_addr: BASE + offset,
            memory_size: len,
            userspace_addr: 2 * BASE + offset,
            mmap_offset: offset,
            mmap_handle: self.guest.file().as_raw_fd(),
        };
        self.frontend.set_mem_table(&[region]).unwrap();
    }

    /// Number of running pairs, when all messages have been processed.
    fn pairs(&self) -> u16 {
        self.frontend.get_features().unwrap();
        lock(&self.status).pairs
    }

    fn queue(&self) -> &Queue {
        self.device.transmit_queue(0).unwrap()
    }

    fn send(&mut self, byte: u8) {
        self.guest.write(BUFFERS, &[byte; 72]);
        self.driver.offer(&self.guest, &Buffer::to_read(BASE + BUFFERS, 72)).unwrap();
        self.kick.write(1).unwrap();
    }

    /// Processes frames like a worker that was woken; returns the first byte of each.
    fn burst(&self) -> Vec<u8> {
        self.queue().acknowledge();
        let mut running = self.queue().lock();
        let Some(running) = running.as_mut() else { return Vec::new() };
        let mut out = Vec::new();
        while running.fetch(4).unwrap() > 0 {
            let chain = running.peek(0).unwrap();
            let mut head = [0; 60];
            running.read_frame(&chain, &mut head).unwrap();
            out.push(head[0]);
            running.complete(0);
        }
        running.publish();
        assert!(running.arm());
        out
    }

    fn is_woken(&self) -> bool {
        let mut fds = [PollFd::from_borrowed_fd(self.queue().as_fd(), PollFlags::IN)];
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() > 0
    }
}

fn modern() -> Features {
    Features::VERSION_1 | Features::MRG_RXBUF | Features::EVENT_IDX | Features::PROTOCOL_FEATURES
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !holds() {
        assert!(Instant::now() < deadline, "not within ten seconds: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_vmm_starts_a_ring_and_its_guest_sends() {
    let mut vmm = Vmm::connect();
    vmm.start();
    assert!(vmm.burst().is_empty() && !vmm.is_woken());
    assert_eq!(vmm.call.read().unwrap(), 1, "whoever was there before may have said nothing");
    vmm.send(7);
    vmm.send(8);
    assert!(vmm.is_woken());
    assert_eq!(vmm.burst(), [8, 8], "both are the same bytes");
    assert!(!vmm.is_woken());
    assert_eq!(vmm.driver.reap(&vmm.guest).len(), 2);
    assert_eq!(vmm.call.read().unwrap(), 1, "one notification for the burst");
}

/// An empty ring next to the driver's, for the queue on which the guest receives.
fn beside(place: RingPlace) -> RingPlace {
    let [descriptors, driver, device] =
        [place.descriptors, place.driver, place.device].map(|at| at + 0x1_0000);
    RingPlace { size: place.size, descriptors, driver, device }
}

/// A VMM may count queues in both directions, and request a device with twice the pairs that it
/// uses, like Cloud Hypervisor.
#[test]
fn a_monitor_may_use_fewer_pairs_than_there_are() {
    let mut vmm = Vmm::connect();
    vmm.start();
    assert_eq!(vmm.pairs(), 0, "half a pair");
    vmm.start_ring(0, &beside(vmm.driver.place()));
    eventually("the pair runs", || vmm.pairs() == 1);
    let runs = |pair| {
        let queues = [vmm.device.receive_queue(pair), vmm.device.transmit_queue(pair)];
        queues.map(|queue| queue.unwrap().is_running())
    };
    assert_eq!([runs(0), runs(1)], [[true; 2], [false; 2]]);
    vmm.send(1);
    assert_eq!(vmm.burst(), [1]);
    // A receive buffer: descriptor, entry, index.
    let descriptor = [&(BASE + BUFFERS).to_le_bytes()[..], &72u32.to_le_bytes(), &[2, 0, 0, 0]];
    vmm.guest.write(0x1_0000, &descriptor.concat());
    vmm.guest.write_u16(0x1_1002, 1);
    let queue = vmm.device.receive_queue(0).unwrap();
    let delivered = queue.lock().as_mut().map(|ring| {
        let outcome = ring.deliver([0; 12], 60, [crate::Part::Ours(&[5; 60])].into_iter());
        ring.publish();
        outcome
    });
    assert_eq!(delivered, Some(Ok(())));
    assert_eq!(vmm.guest.read::<60>(BUFFERS + 12), [5; 60]);
    assert_eq!(vmm.guest.read_u16(0x1_2002), 1);
}

/// Starts both rings of the first pair in `memory`, without a VMM.
fn run_in(session: &mut Session, memory: &Arc<GuestMemory>) {
    session.memory = Some(memory.clone());
    let (features, driver) = (modern(), Driver::new(8, modern().ring()));
    let ring = |place, direction| Ring::new(memory, &place, features.ring(), direction, 0).unwrap();
    let receives = ring(beside(driver.place()), Direction::Receive);
    let sends = ring(driver.place(), Direction::Transmit);
    for (queue, ring) in session.device.queues.iter().zip([receives, sends]) {
        queue.stop();
        queue.start(Running::new(ring, features, None, None)).unwrap();
    }
}

#[test]
fn memory_is_looked_at_once_while_workers_use_their_rings() {
    let (device, guest) = (Device::new(2).unwrap(), Guest::new());
    let mut session = Session::new(device.clone(), SessionNumber::default().next());
    session.rings.iter_mut().for_each(|ring| ring.is_enabled = true);
    run_in(&mut session, &guest.memory);
    let (workers, looks) = (device, Rc::new(Cell::new(0)));
    let counted = looks.clone();
    crate::memory::look::watch(move || {
        counted.set(counted.get() + 1);
        let mut queues = workers.queues.iter();
        assert!(queues.all(|queue| queue.try_lock().is_some()), "a worker has to wait");
    });
    for _ in 0..2 {
        let status = session.status();
        assert!(status.pairs == 1 && status.is_blank);
    }
    assert_eq!(looks.take(), 2, "as long as nothing is found");
    guest.write(BUFFERS, &[1]);
    (0..3).for_each(|_| assert!(!session.status().is_blank));
    assert_eq!(looks.take(), 1, "something was found");
    let memory = GuestMemory::new(&[Guest::region(guest.file(), 0, LEN)]).unwrap();
    run_in(&mut session, &memory);
    (0..3).for_each(|_| assert!(!session.status().is_blank));
    assert_eq!(looks.take(), 1, "once for each table of regions");
}

#[test]
fn a_ring_that_was_stopped_goes_on_where_it_stood() {
    let mut vmm = Vmm::connect();
    vmm.start();
    vmm.send(1);
    assert_eq!(vmm.burst(), [1]);
    assert_eq!(vmm.frontend.get_vring_base(1).unwrap(), 1);
    assert!(vmm.queue().lock().is_none());
    vmm.frontend.set_vring_base(1, 1).unwrap();
    vmm.frontend.set_vring_call(1, &vmm.call).unwrap();
    vmm.frontend.set_vring_kick(1, &vmm.kick).unwrap();
    eventually("the ring runs", || vmm.queue().lock().is_some());
    vmm.send(2);
    assert_eq!(vmm.burst(), [2]);
}

#[test]
fn a_ring_outlives_a_change_of_memory() {
    let mut vmm = Vmm::connect();
    vmm.start();
    vmm.send(1);
    assert_eq!(vmm.burst(), [1]);
    // Half of the memory is removed, without any part of the ring; then the part with the ring.
    vmm.share(0, LEN / 2);
    vmm.frontend.set_vring_enable(1, true).unwrap();
    vmm.send(2);
    eventually("the ring works in the new memory", || vmm.burst() == [2]);
}

/// A worker that finds no ring waits, or continues, depending on whether one will be back.
#[test]
fn a_ring_that_is_to_come_back_is_told_from_one_that_has_stopped() {
    let mut vmm = Vmm::connect();
    vmm.start();
    let tells = |vmm: &Vmm| (vmm.queue().lock().is_some(), vmm.queue().is_running());
    assert_eq!(tells(&vmm), (true, true));
    // The ring's memory is removed, and comes back.
    vmm.share(LEN / 2, LEN / 2);
    eventually("the ring waits", || tells(&vmm) == (false, true));
    vmm.share(0, LEN);
    eventually("the ring runs", || tells(&vmm) == (true, true));
    vmm.share(LEN / 2, LEN / 2);
    vmm.frontend.get_vring_base(1).unwrap();
    assert_eq!(tells(&vmm), (false, false), "it was stopped");
    vmm.share(0, LEN);
    vmm.frontend.set_vring_kick(1, &vmm.kick).unwrap();
    eventually("the ring runs", || tells(&vmm) == (true, true));
    vmm.share(LEN / 2, LEN / 2);
    let Vmm { device, frontend, session, .. } = vmm;
    drop(frontend);
    session.join().unwrap();
    assert!(!device.transmit_queue(0).unwrap().is_running(), "the session is over");
}

/// As with hotplug: the region with the rings is removed before it comes back, and all memory may
/// be away for a while. If the guest were reported as gone, frames for it would be dropped.
#[test]
fn a_pair_whose_memory_is_exchanged_is_there_all_the_time() {
    let mut vmm = Vmm::connect();
    vmm.start();
    vmm.start_ring(0, &beside(vmm.driver.place()));
    assert_eq!(vmm.pairs(), 1);
    let region = |offset| VhostUserMemoryRegionInfo {
        guest_phys_addr: BASE + offset,
        memory_size: LEN,
        userspace_addr: 2 * BASE + offset,
        mmap_offset: 0,
        mmap_handle: vmm.guest.file().as_raw_fd(),
    };
    let running = || vmm.device.queues.iter().filter(|queue| queue.lock().is_some()).count();
    vmm.frontend.clone().add_mem_region(&region(LEN)).unwrap();
    for other in [true, false] {
        vmm.frontend.clone().remove_mem_region(&region(0)).unwrap();
        if !other {
            vmm.frontend.clone().remove_mem_region(&region(LEN)).unwrap();
        }
        assert_eq!((vmm.pairs(), running()), (1, 0), "they wait");
        vmm.frontend.clone().add_mem_region(&region(0)).unwrap();
        assert_eq!((vmm.pairs(), running()), (1, 2));
    }
    vmm.frontend.get_vring_base(0).unwrap();
    assert_eq!(vmm.pairs(), 0, "one of them was stopped");
}

/// A driver has a ring long before it provides buffers. A ring with buffers whose memory changes is
/// not such a ring.
#[test]
fn a_ring_that_the_driver_has_never_filled_is_told_from_one_that_is_full() {
    for packed in [Features::empty(), Features::RING_PACKED] {
        let features = modern() | packed;
        let mut vmm = Vmm::connect_to(Device::new(2).unwrap(), features);
        vmm.share(0, LEN);
        let place = vmm.driver.place();
        vmm.start_ring(0, &place);
        let queue = vmm.device.receive_queue(0).unwrap().clone();
        let deliver = || {
            let mut held = queue.lock();
            let ring = held.as_mut()?;
            let frame = crate::Part::Ours(&[5; 60]);
            let outcome = ring.deliver([0; 12], 60, [frame].into_iter());
            ring.publish();
            Some(outcome)
        };
        let is_unready = || queue.shortage().map(|shortage| shortage.is_unready);
        eventually("the ring runs", || queue.lock().is_some());
        assert_eq!(is_unready(), None, "nothing was for it");
        assert_eq!(deliver(), Some(Err(Undelivered::Unready)));
        assert_eq!(is_unready(), Some(true));
        let buffer = Buffer { writable: true, ..Buffer::to_read(BASE + BUFFERS, 72) };
        // Once around a packed ring, and again.
        for _ in 0..16 {
            vmm.driver.offer(&vmm.guest, &buffer).unwrap();
            assert_eq!(deliver(), Some(Ok(())));
            vmm.driver.reap(&vmm.guest);
            assert_eq!(is_unready(), None);
        }
        assert_eq!(deliver(), Some(Err(Undelivered::Full)));
        // A shortage that no frame meets again is over: a stall of this thread would look like it.
        eventually("a shortage", || deliver().is_some() && is_unready() == Some(false));
        vmm.share(0, LEN);
        vmm.frontend.get_features().unwrap();
        assert_eq!(deliver(), Some(Err(Undelivered::Full)), "the memory was shared anew");
        vmm.frontend.get_vring_base(0).unwrap();
        assert_eq!((deliver(), is_unready()), (None, None));
        // The guest is restarted within the session.
        vmm.guest.write(0, &[0; 0x4000]);
        vmm.start_ring(0, &place);
        eventually("the next ring runs", || queue.lock().is_some());
        assert_eq!(deliver(), Some(Err(Undelivered::Unready)));
    }
}

#[test]
fn a_worker_that_was_left_polling_looks_at_the_next_ring() {
    let mut vmm = Vmm::connect();
    vmm.start();
    assert!(vmm.burst().is_empty());
    // The ring is removed while a worker polls, which then finds none and sleeps.
    vmm.queue().lock().as_mut().unwrap().disarm();
    vmm.frontend.get_vring_base(1).unwrap();
    assert!(vmm.queue().lock().is_none());
    assert!(vmm.burst().is_empty() && !vmm.is_woken());
    vmm.frontend.set_vring_kick(1, &vmm.kick).unwrap();
    eventually("the worker is woken", || vmm.is_woken());
    assert!(vmm.burst().is_empty() && !vmm.is_woken());
}

/// Frames that the guest sends while a ring is disabled must be discarded, and a ring that was
/// never enabled is disabled ("Ring states" in the vhost-user specification).
#[test]
fn a_ring_that_sends_is_served_with_a_mark_while_it_is_disabled() {
    let mut vmm = Vmm::connect();
    vmm.share(0, LEN);
    vmm.start_disabled_ring(1, &vmm.driver.place());
    let is_enabled = |vmm: &Vmm| vmm.queue().lock().as_ref().map(Running::is_enabled);
    eventually("the ring runs", || is_enabled(&vmm) == Some(false));
    for (on, byte) in [(true, 1), (false, 2), (true, 3)] {
        vmm.frontend.set_vring_enable(1, on).unwrap();
        eventually("the mark", || is_enabled(&vmm) == Some(on));
        vmm.send(byte);
        assert_eq!(vmm.burst(), [byte]);
    }
}

#[test]
fn a_ring_that_receives_is_left_alone_while_it_is_disabled() {
    let mut vmm = Vmm::connect();
    vmm.share(0, LEN);
    vmm.start_disabled_ring(0, &vmm.driver.place());
    let queue = vmm.device.receive_queue(0).unwrap().clone();
    vmm.frontend.get_features().unwrap();
    assert!(queue.lock().is_none());
    for on in [true, false] {
        vmm.frontend.set_vring_enable(0, on).unwrap();
        eventually("the ring runs, or rests", || queue.lock().is_some() == on);
    }
}

#[test]
fn a_pair_runs_while_both_of_its_rings_are_enabled() {
    let mut vmm = Vmm::connect();
    vmm.start();
    vmm.start_ring(0, &vmm.driver.place());
    eventually("the pair runs", || vmm.pairs() == 1);
    vmm.frontend.set_vring_enable(1, false).unwrap();
    assert_eq!(vmm.pairs(), 0, "the pair rests");
}

#[test]
fn the_end_of_a_session_stops_everything_and_another_may_come() {
    let device = Device::new(2).unwrap();
    for packed in [false, true] {
        let packed = if packed { Features::RING_PACKED } else { Features::empty() };
        let mut vmm = Vmm::connect_to(device.clone(), modern() | packed);
        if packed.is_empty() {
            vmm.start();
        }
        let Vmm { frontend, session, .. } = vmm;
        drop(frontend);
        assert_eq!(session.join().unwrap(), SessionEnd::Closed);
        assert!(device.transmit_queue(0).unwrap().lock().is_none());
    }
}

/// A worker may have found the violation at the end of the session before.
#[test]
fn what_one_session_did_does_not_end_the_next() {
    let mut vmm = Vmm::connect();
    vmm.start();
    let session = vmm.queue().lock().as_ref().unwrap().session();
    assert_eq!(session, vmm.device.session());
    let Vmm { device, frontend, session: thread, .. } = vmm;
    drop(frontend);
    assert_eq!(thread.join().unwrap(), SessionEnd::Closed);
    let mut next = Vmm::connect_to(device, modern());
    next.start();
    next.device.reset(session, "of the one before");
    assert!(next.queue().lock().is_some());
    next.device.reset(next.device.session(), "of its own");
    assert!(next.queue().lock().is_none());
    assert_eq!(next.session.join().unwrap(), SessionEnd::Reset("of its own".into()));
}

/// After a migration, by a VMM that requests a reply and one that does not.
#[test]
fn a_guest_that_does_not_announce_itself_is_announced() {
    use std::io::{Read, Write};
    let device = Device::new(1).unwrap();
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    let session = std::thread::spawn(move || {
        let mut told = Vec::new();
        (device.serve(theirs, |news| told.push(news)), told)
    });
    for flags in [1, 9_u32] {
        ours.write_all(&[19, flags, 8].map(u32::to_ne_bytes).concat()).unwrap();
        ours.write_all(&[2, 0, 0, 0, 0, 7, 0, 0]).unwrap();
    }
    let mut answer = [0; 20];
    ours.read_exact(&mut answer).unwrap();
    assert_eq!(answer[..], [19, 5, 8, 0, 0].map(u32::to_ne_bytes).concat());
    drop(ours);
    let (end, told) = session.join().unwrap();
    assert_eq!((end, told), (SessionEnd::Closed, vec![News::Announce([2, 0, 0, 0, 0, 7]); 2]));
}

/// A stream has no boundaries: a busy VMM, or a proxy between, may divide messages anywhere.
#[test]
fn a_message_in_pieces_is_one_message() {
    use std::io::{Read, Write};
    let device = Device::new(1).unwrap();
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    let session = std::thread::spawn(move || device.serve(theirs, |_| ()));
    ours.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let words = |words: &[u32]| words.iter().flat_map(|it| it.to_ne_bytes()).collect::<Vec<_>>();
    // An announcement, and the size of a ring; then a question, whose answer ends the turn.
    for message in [words(&[19, 1, 8, 2, 7]), words(&[8, 1, 8, 1, 256])] {
        for at in 1..message.len() {
            ours.write_all(&message[..at]).unwrap();
            // The session has most likely seen the first piece by then.
            std::thread::sleep(Duration::from_millis(1));
            ours.write_all(&message[at..]).unwrap();
            ours.write_all(&words(&[1, 1, 0])).unwrap();
            let mut answer = [0; 20];
            ours.read_exact(&mut answer).unwrap_or_else(|error| panic!("{at}: {error}"));
            assert_eq!(answer[..12], words(&[1, 5, 8]));
        }
    }
    drop(ours);
    assert_eq!(session.join().unwrap(), SessionEnd::Closed);
}

/// Regardless of what a new session does meanwhile.
#[test]
fn no_session_is_left_when_a_device_is_closed() {
    for turn in 0..1000 {
        let device = Device::new(1).unwrap();
        let (ours, theirs) = UnixStream::pair().unwrap();
        let serving = device.clone();
        let session = std::thread::spawn(move || serving.serve(theirs, |_| ()));
        (0..20 * turn).for_each(|_| std::hint::spin_loop());
        device.close();
        eventually("the session is over", || session.is_finished());
        drop(ours);
    }
}

#[test]
fn a_guest_that_misbehaves_loses_its_session_and_nothing_else() {
    let mut vmm = Vmm::connect();
    vmm.start();
    vmm.driver.offer(&vmm.guest, &Buffer::to_read(0, 72)).unwrap();
    let error = vmm.queue().lock().as_mut().unwrap().fetch(1).unwrap_err();
    vmm.device.reset(vmm.device.session(), format!("queue 1: {error}"));
    let Vmm { device, session, .. } = vmm;
    let end = session.join().unwrap();
    assert_eq!(end, SessionEnd::Reset("queue 1: a buffer is outside the shared memory".into()));
    let mut next = Vmm::connect_to(device, modern());
    next.start();
    next.send(3);
    assert_eq!(next.burst(), [3]);
}

#[test]
fn what_cannot_be_served_is_refused_with_a_reason() {
    let refused = |spoil: &dyn Fn(&mut Vmm)| {
        let mut vmm = Vmm::connect();
        spoil(&mut vmm);
        let Vmm { session, .. } = vmm;
        match session.join().unwrap() {
            SessionEnd::Refused(why) => why,
            end => panic!("{end:?}"),
        }
    };
    let why = refused(&|vmm| vmm.share(0, 2 * LEN));
    assert!(why.contains("its file has 1048576 bytes"), "{why}");
    let why = refused(&|vmm| vmm.frontend.set_features(1 << 60).unwrap());
    assert!(why.contains("some of them were not offered"), "{why}");
    let why = refused(&|vmm| vmm.frontend.set_vring_kick(1, &vmm.kick).unwrap());
    assert!(why.contains("not shared") && why.contains("share=on"), "{why}");
}

#[test]
fn a_region_that_is_added_again_takes_the_place_of_itself() {
    let mut vmm = Vmm::connect();
    let region = VhostUserMemoryRegionInfo {
        guest_phys_addr: BASE,
        memory_size: LEN,
        userspace_addr: 2 * BASE,
        mmap_offset: 0,
        mmap_handle: vmm.guest.file().as_raw_fd(),
    };
    for _ in 0..2 {
        vmm.frontend.add_mem_region(&region).unwrap();
    }
    vmm.frontend.set_vring_num(1, 8).unwrap();
    vmm.start();
    vmm.send(1);
    assert_eq!(vmm.burst(), [1]);
    vmm.frontend.remove_mem_region(&region).unwrap();
}

/// A dirty bitmap, as a VMM shares it.
struct Map(OwnedFd);

impl Map {
    /// Length in bytes: all pages of the guest, and those before them.
    const LEN: u64 = (BASE + LEN) / 4096 / 8;

    fn share(vmm: &Vmm) -> Self {
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        let map = Self(rustix::fs::memfd_create("map", flags).unwrap());
        rustix::fs::ftruncate(&map.0, Self::LEN).unwrap();
        let (mmap_size, mmap_offset) = (Self::LEN, 0);
        let mmap_handle = map.0.as_raw_fd();
        let region = VhostUserDirtyLogRegion { mmap_size, mmap_offset, mmap_handle };
        vmm.frontend.set_log_base(0, Some(region)).unwrap();
        map
    }

    /// Whether any page was logged; clears the bitmap.
    fn take(&self) -> bool {
        let mut bytes = [0; Self::LEN as usize];
        rustix::io::pread(&self.0, &mut bytes, 0).unwrap();
        rustix::io::pwrite(&self.0, &[0; Self::LEN as usize], 0).unwrap();
        bytes.iter().any(|byte| *byte != 0)
    }
}

#[test]
fn while_a_guest_is_moved_its_rings_are_noted_and_then_no_more() {
    for packed in [Features::empty(), Features::RING_PACKED] {
        let features = modern() | packed;
        let mut vmm = Vmm::connect_to(Device::new(2).unwrap(), features);
        vmm.start();
        let map = Map::share(&vmm);
        vmm.send(1);
        assert_eq!(vmm.burst(), [1]);
        assert!(!map.take(), "nothing was to be noted");
        vmm.frontend.set_features((features | Features::LOG_ALL).bits()).unwrap();
        vmm.describe(0);
        eventually("the ring is noted", || map.take());
        vmm.send(2);
        assert_eq!(vmm.burst(), [2]);
        assert!(map.take());
        vmm.frontend.set_features(features.bits()).unwrap();
        vmm.frontend.get_features().unwrap();
        map.take();
        vmm.send(3);
        assert_eq!(vmm.burst(), [3]);
        assert!(!map.take());
    }
}

#[test]
fn a_ring_that_is_to_be_noted_waits_for_the_map() {
    let mut vmm = Vmm::connect();
    vmm.start();
    vmm.describe(1);
    eventually("the ring rests", || vmm.queue().lock().is_none());
    vmm.send(1);
    assert!(vmm.burst().is_empty());
    let map = Map::share(&vmm);
    eventually("the ring runs", || vmm.queue().lock().is_some());
    map.take();
    assert_eq!(vmm.burst(), [1]);
    assert!(map.take());
}
