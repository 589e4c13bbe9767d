//! Keeps programs that this crate starts from holding files open that tests are about to close.
//!
//! Between fork(2) and execve(2) a child has copies of all open files, whatever their flags. A tap
//! device lives until its last file is closed: one that a test closes in that moment stays, and the
//! next use of its name is refused. So programs are started while no test has such files open.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// While it lives, this process boots no guest, and starts no other program under [`forking`]: for
/// tests that rely on a file being closed at once. One thread may have several.
#[derive(Debug)]
pub struct NoForks(());

impl NoForks {
    /// Waits until no program is being started.
    #[expect(clippy::new_without_default, reason = "it is an act, not a value")]
    pub fn new() -> Self {
        *holders() += 1;
        Self(())
    }
}

impl Drop for NoForks {
    fn drop(&mut self) {
        *holders() -= 1;
        GONE.notify_all();
    }
}

/// Waits until no [`NoForks`] lives; none can be created until the returned value is dropped: for
/// tests that start programs themselves. If tests overlap without a gap, it goes ahead after a
/// minute.
pub fn forking() -> impl Drop {
    let guard = GONE.wait_timeout_while(holders(), PATIENCE, |holders| *holders > 0);
    guard.unwrap_or_else(PoisonError::into_inner).0
}

fn holders() -> MutexGuard<'static, usize> {
    HOLDERS.lock().unwrap_or_else(PoisonError::into_inner)
}

static HOLDERS: Mutex<usize> = Mutex::new(0);
static GONE: Condvar = Condvar::new();
const PATIENCE: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    use std::sync::mpsc;
    use std::thread;

    #[test]
    fn a_program_is_started_when_the_last_holder_is_gone() {
        let (first, second) = (NoForks::new(), NoForks::new());
        let (tell, told) = mpsc::channel();
        let starter = thread::spawn(move || {
            let _forking = forking();
            tell.send(()).unwrap();
        });
        drop(first);
        assert!(told.recv_timeout(Duration::from_millis(50)).is_err());
        drop(second);
        told.recv_timeout(PATIENCE).unwrap();
        starter.join().unwrap();
    }
}
