//! What a thread logs at level `info` and above.

use std::fmt::{self, Write};
use std::sync::{Arc, Mutex, Once};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing::{Event, Level, Metadata, Subscriber};

/// Messages that a thread has logged.
#[derive(Clone, Debug)]
pub struct Log(Arc<Mutex<Vec<String>>>);

impl Default for Log {
    fn default() -> Self {
        // While there is a single listener, tracing asks that of the thread which comes first to a
        // place whether its messages are of interest, and remembers the answer for all threads. So
        // there are always two of them.
        static EVERYWHERE: Once = Once::new();
        EVERYWHERE.call_once(|| tracing::subscriber::set_global_default(Deaf).unwrap());
        Self(Arc::default())
    }
}

impl Log {
    /// Begins the log of this thread, which ends when the guard is dropped.
    pub fn start() -> (Self, DefaultGuard) {
        let log = Self::default();
        (log.clone(), tracing::subscriber::set_default(log))
    }

    /// Adds what `action` logs.
    pub fn during<R>(&self, action: impl FnOnce() -> R) -> R {
        tracing::subscriber::with_default(self.clone(), action)
    }

    /// Returns the messages and forgets them.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }

    /// The messages that contain this text.
    pub fn lines_with(&self, text: &str) -> Vec<String> {
        let lines = self.0.lock().unwrap();
        lines.iter().filter(|line| line.contains(text)).cloned().collect()
    }
}

/// Implements a subscriber without spans, with this reaction to events.
macro_rules! subscriber {
    ($name:ty, $event:expr) => {
        impl Subscriber for $name {
            fn enabled(&self, of: &Metadata<'_>) -> bool {
                *of.level() <= Level::INFO
            }

            fn event(&self, event: &Event<'_>) {
                $event(self, event);
            }

            fn new_span(&self, _: &Attributes<'_>) -> Id {
                Id::from_u64(1)
            }

            fn record(&self, _: &Id, _: &Record<'_>) {}

            fn record_follows_from(&self, _: &Id, _: &Id) {}

            fn enter(&self, _: &Id) {}

            fn exit(&self, _: &Id) {}
        }
    };
}

subscriber!(Log, |log: &Self, event: &Event<'_>| {
    let mut line = Line::default();
    event.record(&mut line);
    log.0.lock().unwrap().push(line.0);
});

/// Wants the messages of all threads, and does nothing with them.
struct Deaf;

subscriber!(Deaf, |_: &Self, _: &Event<'_>| {});

/// The message of an event.
#[derive(Default)]
struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            write!(self.0, "{value:?}").unwrap();
        }
    }
}
