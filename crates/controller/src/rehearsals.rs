//! Limits concurrent dry runs.
//!
//! A dry run traces frames through all resulting rules, which takes seconds in a large fabric. So a
//! few run at once, on threads of their own and on a copy of the state; some wait; further ones are
//! refused. A caller that goes away gives its place up.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::RequestError;

/// The limiter. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Rehearsals {
    /// Permits for running and waiting ones.
    places: Arc<Semaphore>,
    turns: Arc<Semaphore>,
}

/// Permission to run, until it is dropped.
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
    /// Waits for a permission, unless too many are waiting.
    pub(crate) async fn turn(&self) -> Result<Turn, RequestError> {
        let place = Arc::clone(&self.places).try_acquire_owned();
        let place = place.map_err(|_| RequestError::TooManyPlans { max: MAX_WAITING })?;
        // It is never closed.
        let turn = Arc::clone(&self.turns).acquire_owned().await;
        let turn = turn.map_err(|_| RequestError::Stopped)?;
        Ok(Turn { _place: place, _turn: turn })
    }

    /// Whether none is running or waiting.
    #[cfg(test)]
    pub(crate) fn is_idle(&self) -> bool {
        self.places.available_permits() == MAX_WAITING
    }
}

/// Maximum concurrent dry runs.
const AT_ONCE: usize = 2;
/// Maximum of running and waiting ones.
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
        // A caller that goes away makes room.
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
