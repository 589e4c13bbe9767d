//! Input queues of the hub: news of connections and requests, each in order.

use tokio::sync::mpsc;

use super::{Input, Request};

/// The hub's end of the queues.
#[derive(Debug)]
pub(crate) struct Inputs {
    pub(super) news: mpsc::Receiver<Input>,
    pub(super) requests: mpsc::Receiver<Request>,
    /// For requests by the hub's own tasks.
    pub(super) own: mpsc::WeakSender<Request>,
}

/// The sending end of [`Inputs`]. Cheap to clone.
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
        let own = to_requests.downgrade();
        (ToHub { news: to_news, requests: to_requests }, Self { news, requests, own })
    }
}

/// Maximum length of each queue; beyond it connections are not read, and callers wait.
const MAX_WAITING: usize = 1024;
