//! Notifying a driver through the eventfd that its VMM has passed, without ever blocking.
//!
//! A write(2) to an eventfd blocks while the counter is full, unless `O_NONBLOCK` is set. The file
//! is shared with the VMM, which may fill the counter and clear the flag: a worker that serves
//! other guests would block. No other write helps: eventfds do not support pwritev2(2) with
//! `RWF_NOWAIT`, and checking first leaves a race that a hostile VMM can win.
//!
//! The kernel itself signals eventfds without blocking when an asynchronous I/O operation completes
//! (io_submit(2), `aio_resfd`). So we submit an operation that completes at once: a read of zero
//! bytes from the eventfd, which fails, as eventfds only read eight bytes (since Linux 5.8; older
//! kernels refuse asynchronous reads of eventfds, and report that). Whether the counter is full
//! then does not matter.
//!
//! If this is impossible (a kernel without `CONFIG_AIO`, a sandbox, `fs.aio-max-nr` used up),
//! write(2) is used, with `O_NONBLOCK` set when the eventfd arrives: a VMM that clears the flag and
//! fills its own counter then blocks a worker.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use libc::{c_long, c_ulong};
use rustix::io::Errno;

/// Signals `call`, an eventfd. Does not block.
pub(crate) fn signal(call: impl AsFd) {
    let call = call.as_fd();
    let by_kernel = |context: &Option<Context>| context.as_ref().is_some_and(|it| it.signal(call));
    // A thread that ends has no context any more.
    if !CONTEXT.try_with(by_kernel).unwrap_or(false) {
        // The counter is full if earlier notifications have not been read.
        let _ = rustix::io::write(call, &1u64.to_ne_bytes());
    }
}

thread_local! {
    /// Per thread, so that threads do not contend.
    static CONTEXT: Option<Context> = Context::new();
}

/// An asynchronous I/O context (`aio_context_t`) without operations in progress.
struct Context(c_ulong);

impl Context {
    /// `None` if the kernel refuses a context.
    fn new() -> Option<Self> {
        let mut id: c_ulong = 0;
        // SAFETY: (rustix has none of these calls, here and below.) The kernel writes the context's
        // id to `id`, which outlives the call.
        let outcome = unsafe { libc::syscall(libc::SYS_io_setup, EVENT_COUNT, &raw mut id) };
        (outcome == 0).then_some(Self(id))
    }

    /// Lets the kernel signal an eventfd. Returns `false` if it cannot.
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
        // request's second word, all during the call. The operation reads zero bytes to no memory,
        // so nothing has to outlive the call.
        let done = unsafe { libc::syscall(libc::SYS_io_submit, self.0, count, list.as_mut_ptr()) };
        if done == count { Ok(()) } else { Err(last_error()) }
    }

    /// Removes the completion events of earlier operations.
    #[cold]
    fn clear(&self) {
        let mut events = [[0u64; EVENT_WORDS]; EVENT_COUNT];
        let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let (least, most, to): (c_long, _, _) = (0, EVENT_COUNT, events.as_mut_ptr());
        // SAFETY: the kernel writes at most `most` events to `events`, which has room for them and
        // in which any bytes are valid, and reads the time; both outlive the call.
        unsafe {
            libc::syscall(libc::SYS_io_getevents, self.0, least, most, to, &raw const at_once)
        };
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: the context is ours, and no operation is in progress in it.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.0) };
    }
}

/// An operation (`struct iocb`).
#[repr(C)]
struct Request {
    data: u64,
    /// Two fields, whose order depends on the endianness; both are unused.
    key_and_rw_flags: u64,
    opcode: u16,
    priority: i16,
    fd: u32,
    buf: u64,
    len: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    /// The eventfd to signal on completion (`aio_resfd`).
    signalled: u32,
}

impl Request {
    /// A read of zero bytes.
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

/// Requested event capacity of a context; the kernel may provide more.
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

    /// The eventfd of a VMM that has cleared `O_NONBLOCK`. If this blocks, it does so for ever.
    #[test]
    fn a_full_counter_makes_nobody_wait() {
        if Context::new().is_none() {
            // Bypasses the harness, which would capture `println!`.
            let _ = std::io::stdout().write_all(b"\nSKIP: this kernel has no asynchronous I/O\n");
            return;
        }
        let event = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        rustix::io::write(&event, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        (0..1000).for_each(|_| signal(&event));
        assert_eq!(value(&event), u64::MAX);
    }
}
