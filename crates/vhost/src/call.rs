//! Notifying a driver by the eventfd that its VMM has handed over, without ever having to wait.
//!
//! A write(2) to an eventfd waits while the counter is full, unless the file is set not to
//! (`O_NONBLOCK`). The file is as much the VMM's as ours: it may fill the counter and take the flag
//! back, and a worker that serves others would wait for it. No other write helps: pwritev2(2) with
//! `RWF_NOWAIT` is not for eventfds, and who looks before leaves a gap to the hostile.
//!
//! The kernel itself signals eventfds and never waits for that: an operation of its asynchronous
//! I/O does so when it is done (io_submit(2), `aio_resfd`). So an operation is submitted that is
//! done at once: a read of no bytes from the eventfd, which is refused, for eight are read or none
//! (since Linux 5.8; older ones do not read eventfds so, and say it). Whether the counter is full
//! is nobody's business then.
//!
//! Where that cannot be (a kernel without `CONFIG_AIO`, a sandbox, `fs.aio-max-nr` used up), it is
//! a write(2) after all, with the flag set when the eventfd came: a VMM that takes it back, and
//! fills its own counter, makes a worker wait there.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use libc::{c_long, c_ulong};
use rustix::io::Errno;

/// Notifies whoever waits for `call`, an eventfd. Does not wait.
pub(crate) fn signal(call: impl AsFd) {
    let call = call.as_fd();
    let by_kernel = |context: &Option<Context>| context.as_ref().is_some_and(|it| it.signal(call));
    // A thread that ends has no context any more.
    if !CONTEXT.try_with(by_kernel).unwrap_or(false) {
        // Full means that nobody has looked at the last ones.
        let _ = rustix::io::write(call, &1u64.to_ne_bytes());
    }
}

thread_local! {
    /// Of the calling thread, so that threads do not wait for each other.
    static CONTEXT: Option<Context> = Context::new();
}

/// A context of asynchronous I/O (`aio_context_t`), in which no operation is ever under way.
struct Context(c_ulong);

impl Context {
    /// `None` when the kernel gives none.
    fn new() -> Option<Self> {
        let mut id: c_ulong = 0;
        // SAFETY: (rustix has none of these calls, here and below.) The kernel writes the number of
        // the context to `id`, which outlives the call.
        let outcome = unsafe { libc::syscall(libc::SYS_io_setup, EVENT_COUNT, &raw mut id) };
        (outcome == 0).then_some(Self(id))
    }

    /// Has the kernel signal an eventfd. Returns `false` when it does not.
    fn signal(&self, call: BorrowedFd<'_>) -> bool {
        match self.submit(call) {
            Err(Errno::AGAIN) => {
                self.clear();
                self.submit(call).is_ok()
            }
            outcome => outcome.is_ok(),
        }
    }

    fn submit(&self, call: BorrowedFd<'_>) -> rustix::io::Result<()> {
        let fd = call.as_raw_fd().cast_unsigned();
        let mut request = Request { fd, flags: IOCB_FLAG_RESFD, signalled: fd, ..Request::READ };
        let (count, mut list): (c_long, _) = (1, [&raw mut request]);
        // SAFETY: the kernel reads a list of one pointer and the request there, and writes to the
        // request's second word, all during the call. The operation reads nothing to no memory, so
        // nothing has to outlive the call.
        let done = unsafe { libc::syscall(libc::SYS_io_submit, self.0, count, list.as_mut_ptr()) };
        if done == count { Ok(()) } else { Err(last_error()) }
    }

    /// Makes room for what the kernel tells of operations that are done.
    #[cold]
    fn clear(&self) {
        let mut events = [[0u64; EVENT_WORDS]; EVENT_COUNT];
        let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let (least, most, to): (c_long, _, _) = (0, EVENT_COUNT, events.as_mut_ptr());
        // SAFETY: the kernel writes at most `most` events to `events`, which has room for so many
        // and in which any bytes are valid, and reads the time; both outlive the call.
        unsafe {
            libc::syscall(libc::SYS_io_getevents, self.0, least, most, to, &raw const at_once)
        };
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: the context is ours, and nothing is under way in it.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.0) };
    }
}

/// An operation (`struct iocb`).
#[repr(C)]
struct Request {
    data: u64,
    /// Two fields, whose order depends on the machine's; nothing is asked for by either.
    key_and_rw_flags: u64,
    opcode: u16,
    priority: i16,
    fd: u32,
    buf: u64,
    len: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    /// The eventfd that is signalled when it is done (`aio_resfd`).
    signalled: u32,
}

impl Request {
    /// A read of no bytes.
    const READ: Self = Self {
        data: 0,
        key_and_rw_flags: 0,
        opcode: IOCB_CMD_PREAD,
        priority: 0,
        fd: 0,
        buf: 0,
        len: 0,
        offset: 0,
        reserved: 0,
        flags: 0,
        signalled: 0,
    };
}

#[cold]
fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// Events that a context has room for; the kernel makes it some more.
const EVENT_COUNT: usize = 64;
/// Words of a `struct io_event`.
const EVENT_WORDS: usize = 4;
// `include/uapi/linux/aio_abi.h`.
const IOCB_CMD_PREAD: u16 = 0;
const IOCB_FLAG_RESFD: u32 = 1;

#[cfg(test)]
mod tests {
    use std::io::Write;

    use rustix::event::{EventfdFlags, eventfd};

    use super::*;

    fn value(event: impl AsFd) -> u64 {
        let mut bytes = [0; 8];
        rustix::io::read(event, &mut bytes).unwrap();
        u64::from_ne_bytes(bytes)
    }

    #[test]
    fn each_signal_counts() {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
        for count in [1, 3, 1000] {
            (0..count).for_each(|_| signal(&event));
            assert_eq!(value(&event), count);
        }
    }

    /// As a monitor may have it that took `O_NONBLOCK` back. If this waits, it does so for ever.
    #[test]
    fn a_full_counter_makes_nobody_wait() {
        if Context::new().is_none() {
            // Past the harness, which would swallow `println!`.
            let _ = std::io::stdout().write_all(b"\nSKIP: this kernel has no asynchronous I/O\n");
            return;
        }
        let event = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        rustix::io::write(&event, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        (0..1000).for_each(|_| signal(&event));
        assert_eq!(value(&event), u64::MAX);
    }
}
