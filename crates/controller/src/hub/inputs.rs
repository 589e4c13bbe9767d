//! What waits for the hub: what happens and what is asked, each in the order in which it came.

use tokio::sync::mpsc;

use super::{Input, Request};

/// What waits for the hub.
#[derive(Debug)]
pub(crate) struct Inputs {
    pub(super) news: mpsc::Receiver<Input>,
    pub(super) requests: mpsc::Receiver<Request>,
}

/// The other end of [`Inputs`]. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct ToHub {
    pub(crate) news: mpsc::Sender<Input>,
    pub(crate) requests: mpsc::Sender<Request>,
}

impl Inputs {
    /// Both ends.
    pub(crate) fn new() -> (ToHub, Self) {
        let (to_news, news) = mpsc::channel(MAX_WAITING);
        let (to_requests, requests) = mpsc::channel(MAX_WAITING);
        (ToHub { news: to_news, requests: to_requests }, Self { news, requests })
    }
}

/// Inputs of a kind that wait; with more, connections are read from later, and whoever asks
/// waits for room.
const MAX_WAITING: usize = 1024;
