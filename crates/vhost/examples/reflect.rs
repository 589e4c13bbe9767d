//! Returns a guest's frames to the guest: `reflect SOCKET [SECONDS]`.
//!
//! Waits for a VMM at the socket, and returns each frame of its guest unchanged. Prints the number
//! of frames every second.

use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tapswitch_vhost::{Device, Part, Queue, Undelivered};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or("expected: reflect SOCKET [SECONDS]")?;
    let seconds = args.next().map_or(Ok(u64::MAX), |text| text.parse())?;
    let deadline = Instant::now().checked_add(Duration::from_secs(seconds));
    let listener = UnixListener::bind(&path)?;
    let device = Device::new(1)?;
    let serving = device.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            println!("session: {:?}", serving.serve(stream, |news| println!("{news:?}")));
        }
    });
    let (from, to) = (device.transmit_queue(0), device.receive_queue(0));
    let (Some(from), Some(to)) = (from, to) else { return Err("no queues".into()) };
    let (mut count, mut lost, mut next) = (0u64, 0u64, Instant::now());
    while deadline.is_none_or(|deadline| Instant::now() < deadline) {
        match burst(from, to) {
            Ok(None) => sleep(from)?,
            Ok(Some((done, dropped))) => (count, lost) = (count + done, lost + dropped),
            Err(error) => device.reset(device.session(), error),
        }
        if Instant::now() >= next {
            println!("{count} frames, {lost} lost");
            next += Duration::from_secs(1);
        }
    }
    std::fs::remove_file(&path)?;
    Ok(())
}

/// Moves available frames. Returns `None` if there are none; the driver then notifies us of the
/// next.
fn burst(from: &Queue, to: &Queue) -> Result<Option<(u64, u64)>, String> {
    let (mut from, mut to) = (from.lock(), to.lock());
    let Some(from) = from.as_mut() else { return Ok(None) };
    let mut lost = 0;
    let mut done = 0;
    while done < 64 && from.fetch(64).map_err(|error| error.to_string())? > 0 {
        let Some(chain) = from.peek(0) else { break };
        let mut head = [0; 128];
        // Frames on a disabled ring are discarded.
        if from.is_enabled()
            && let Some((header, len)) = from.read_frame(&chain, &mut head)
        {
            let head = &head[..len.min(128)];
            let rest = from.frame_from(&chain, head.len());
            let parts = std::iter::once(Part::Ours(head)).chain(rest);
            let outcome = match to.as_mut() {
                Some(to) => to.deliver(header, len, parts),
                None => Err(Undelivered::Full),
            };
            match outcome {
                Ok(()) => {}
                Err(Undelivered::Ring(error)) => return Err(error.to_string()),
                Err(_) => lost += 1,
            }
        }
        from.complete(0);
        done += 1;
    }
    from.publish();
    if let Some(to) = to.as_mut() {
        to.publish();
    }
    Ok((done > 0 || !from.arm()).then_some((done, lost)))
}

fn sleep(queue: &Queue) -> rustix::io::Result<()> {
    let mut fds = [PollFd::new(queue, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 100_000_000 }))?;
    queue.acknowledge();
    Ok(())
}
