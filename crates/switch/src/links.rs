//! The thread that watches the interfaces behind the ports and sleeps until one changes.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use tapswitch_netlink::{LinkError, LinkEvent, LinkMonitor, Namespace};
use tokio::sync::mpsc;

/// A change of an interface in the namespace with this index.
#[derive(Debug)]
pub(crate) struct LinkNews {
    pub(crate) namespace: usize,
    pub(crate) event: LinkEvent,
}

/// A watch on some namespaces. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct LinkWatch {
    end: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl LinkWatch {
    /// Starts to watch `namespaces`, which are numbered from `first` on.
    pub(crate) fn start(
        namespaces: &[Namespace],
        first: usize,
        news: mpsc::Sender<LinkNews>,
    ) -> Result<Self, WatchError> {
        let monitors: Vec<_> =
            namespaces.iter().map(LinkMonitor::open).collect::<Result<_, _>>()?;
        let end = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).map_err(io::Error::from)?);
        let thread_end = end.clone();
        let body = move || {
            if let Err(error) = watch(monitors, first, &thread_end, &news) {
                tracing::error!("interfaces are no longer monitored: {error}");
            }
        };
        let thread = std::thread::Builder::new().name("tapswitch-links".to_owned()).spawn(body)?;
        Ok(Self { end, thread: Some(thread) })
    }

    /// Ends the watch without joining its thread, which may wait for us to take its news.
    pub(crate) fn end(mut self) {
        self.thread = None;
    }
}

impl Drop for LinkWatch {
    fn drop(&mut self) {
        crate::bell::ring(&*self.end);
        if let Some(thread) = self.thread.take() {
            // The thread itself has reported a panic.
            let _ = thread.join();
        }
    }
}

/// Why interfaces cannot be watched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WatchError {
    /// The subscription failed.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// A thread or its end signal cannot be created.
    #[error("cannot monitor the interfaces: {0}; {remedy}", remedy = MORE_THREADS)]
    Io(#[from] io::Error),
}

/// Forwards changes until `end` is readable or the receiver is gone.
fn watch(
    mut monitors: Vec<LinkMonitor>,
    first: usize,
    end: &OwnedFd,
    news: &mpsc::Sender<LinkNews>,
) -> io::Result<()> {
    loop {
        for (namespace, monitor) in (first..).zip(monitors.iter_mut()) {
            while let Some(event) = monitor.poll_event()? {
                if news.blocking_send(LinkNews { namespace, event }).is_err() {
                    return Ok(());
                }
            }
        }
        let fds = monitors.iter().map(AsFd::as_fd).chain([end.as_fd()]);
        let mut fds: Vec<_> = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        match poll(&mut fds, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let ends = fds.last().is_some_and(|end| !end.revents().is_empty());
        if ends {
            return Ok(());
        }
    }
}

/// The remedy when the kernel refuses a thread or what belongs to it.
pub(crate) const MORE_THREADS: &str =
    "raise the limits of threads and open files (TasksMax= and LimitNOFILE= of systemd)";
