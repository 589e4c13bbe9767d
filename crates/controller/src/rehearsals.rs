//! Turns of those who want to know what a change would do.
//!
//! A dry run follows frames through all rules that there would be, which takes seconds in a large
//! fabric. So a few go at once, on threads of their own and on a copy of what is known, some wait,
//! and with more whoever asks is told so. Who does not wait any more gives the place up.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::RequestError;

/// The turns. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Rehearsals {
    /// For those that are under way or wait.
    places: Arc<Semaphore>,
    turns: Arc<Semaphore>,
}

/// Whose turn it is, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    _place: OwnedSemaphorePermit,
    _turn: OwnedSemaphorePermit,
}

impl Default for Rehearsals {
    fn default() -> Self {
        let of = |count| Arc::new(Semaphore::new(count));
        Self { places: of(MAX_WAITING), turns: of(AT_ONCE) }
    }
}

impl Rehearsals {
    /// Waits for a turn, if not too many do.
    pub(crate) async fn turn(&self) -> Result<Turn, RequestError> {
        let place = Arc::clone(&self.places).try_acquire_owned();
        let place = place.map_err(|_| RequestError::TooManyPlans { max: MAX_WAITING })?;
        // It is never closed.
        let turn = Arc::clone(&self.turns).acquire_owned().await;
        let turn = turn.map_err(|_| RequestError::Stopped)?;
        Ok(Turn { _place: place, _turn: turn })
    }

    /// Whether nobody waits, or has a turn.
    #[cfg(test)]
    pub(crate) fn is_idle(&self) -> bool {
        self.places.available_permits() == MAX_WAITING
    }
}

/// Dry runs under way.
const AT_ONCE: usize = 2;
/// Those, and others that wait.
const MAX_WAITING: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn some_wait_for_their_turn_and_more_are_told_to_come_back() {
        let rehearsals = Rehearsals::default();
        let first = rehearsals.turn().await.unwrap();
        let _second = rehearsals.turn().await.unwrap();
        let wait = || {
            let rehearsals = rehearsals.clone();
            tokio::spawn(async move { rehearsals.turn().await.map(|_| ()) })
        };
        let waiting: Vec<_> = (AT_ONCE..MAX_WAITING).map(|_| wait()).collect();
        while rehearsals.places.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        let error = rehearsals.turn().await.unwrap_err();
        assert!(error.to_string().contains("try again"), "{error}");
        // Who hangs up makes room.
        waiting[0].abort();
        while rehearsals.places.available_permits() == 0 {
            tokio::task::yield_now().await;
        }
        drop(first);
        for waiting in waiting.into_iter().skip(1) {
            waiting.await.unwrap().unwrap();
        }
        rehearsals.turn().await.unwrap();
    }
}
