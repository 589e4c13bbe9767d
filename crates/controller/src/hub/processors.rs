//! Parallel work that the hub waits for.

use std::num::NonZero;
use std::thread::{available_parallelism, scope};

use tapswitch_control::{Change, Look, Verdict};

/// Checks changes on all processors. The hub does nothing else meanwhile, so the checked state is
/// constant.
pub(super) fn on_all_processors(changes: &[Change<'_>], look: &Look<'_>) -> Vec<Verdict> {
    let threads = available_parallelism().map_or(1, NonZero::get).min(MOST_THREADS);
    share_out(changes, look, changes.len().div_ceil(threads).max(LEAST_SHARE))
}

/// Gives `share` changes to each thread, the first ones to the current thread.
fn share_out(changes: &[Change<'_>], look: &Look<'_>, share: usize) -> Vec<Verdict> {
    let Some((own, others)) = changes.split_at_checked(share).filter(|(_, it)| !it.is_empty())
    else {
        return look(changes);
    };
    scope(|scope| {
        let begin = |share| (share, scope.spawn(move || look(share)));
        let others: Vec<_> = others.chunks(share).map(begin).collect();
        let own = look(own);
        // A panic in another thread is propagated.
        let others =
            others.into_iter().map(|(share, it)| it.join().unwrap_or_else(|_| look(share)));
        own.into_iter().chain(others.flatten()).collect()
    })
}

/// Maximum threads for changes made together, and the minimum changes per thread: fewer take no
/// longer than starting a thread.
const MOST_THREADS: usize = 8;
const LEAST_SHARE: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_has_its_verdict_however_they_are_shared_out() {
        let names: Vec<_> = (0..20).map(|number| number.to_string()).collect();
        let look = |changes: &[Change<'_>]| -> Vec<Verdict> {
            let verdict = |change: &Change<'_>| match change {
                Change::Delete(name) => {
                    Verdict { unproved: Some((*name).to_owned()), ..Verdict::default() }
                }
                _ => Verdict::default(),
            };
            changes.iter().map(verdict).collect()
        };
        for (count, share) in [(0, 8), (1, 8), (8, 8), (9, 8), (20, 7), (20, 20), (20, 1)] {
            let changes: Vec<_> =
                names.iter().take(count).map(|name| Change::Delete(name)).collect();
            let verdicts = share_out(&changes, &look, share);
            let told: Vec<_> =
                verdicts.into_iter().filter_map(|verdict| verdict.unproved).collect();
            assert_eq!(told, names[..count], "{count} by {share}");
        }
    }
}
