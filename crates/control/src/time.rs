//! Time as the caller tells it.

/// Milliseconds since an origin that the caller chose, monotonic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Millis(pub u64);

impl Millis {
    /// Time passed since `earlier`, zero when that lies in the future.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }

    /// The moment `wait` from here.
    #[must_use]
    pub const fn plus(self, wait: Self) -> Self {
        Self(self.0.saturating_add(wait.0))
    }
}
