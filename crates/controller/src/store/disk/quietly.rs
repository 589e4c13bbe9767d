//! Catches panics of a library without the text that the standard library prints for each: what it
//! means is reported by our own error, in words for the user.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

thread_local! {
    /// Whether a panic of this thread is caught here.
    static IS_CAUGHT: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work`; an error means that it panicked. Panics of other threads, and of this one outside
/// of it, are printed as ever.
pub(super) fn catch<T>(work: impl FnOnce() -> T) -> Result<T, ()> {
    static HOOKED: Once = Once::new();
    HOOKED.call_once(|| {
        let print = panic::take_hook();
        panic::set_hook(Box::new(move |panic| match IS_CAUGHT.get() {
            true => tracing::debug!("caught: {panic}"),
            false => print(panic),
        }));
    });
    let is_inside = IS_CAUGHT.replace(true);
    let result = panic::catch_unwind(AssertUnwindSafe(work));
    IS_CAUGHT.set(is_inside);
    result.map_err(drop)
}
