//! A loaded program.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::asm::Instruction;
use super::{BpfError, sys};

/// A program of type "socket filter" that the kernel has verified and compiled.
#[derive(Debug)]
pub(crate) struct Program {
    fd: OwnedFd,
    name: &'static str,
}

impl Program {
    /// Loads `code`, which requires the Linux release `needed`. The verifier writes its log only in
    /// a second attempt, after it refused the program.
    pub(crate) fn load(
        name: &'static str,
        code: &[Instruction],
        needed: (u32, u32),
    ) -> Result<Self, BpfError> {
        match sys::load(name, code, &mut []) {
            Ok(fd) => Ok(Self { fd, name }),
            Err(error) => Err(BpfError::load(name, error, needed, &verifier_log(name, code))),
        }
    }

    /// Runs the program `repeat` times (at least once) on `frame`, with `gso_size` as its segment
    /// size.
    pub(crate) fn test_run(
        &self,
        frame: &[u8],
        gso_size: u32,
        repeat: u32,
    ) -> Result<TestRun, BpfError> {
        // The kernel removes an Ethernet header before it runs a socket filter.
        let data = [&[0; ETHERNET_LEN], frame].concat();
        let mut context = [0; CONTEXT_WORDS];
        context[CONTEXT_GSO_SIZE] = gso_size;
        let context = if gso_size == 0 { &[][..] } else { &context };
        let run = || sys::test_run(self.as_fd(), &data, context, repeat.max(1));
        let (value, run_ns) = retry_interrupted(run)
            .map_err(|source| BpfError::new(self.name, "BPF_PROG_TEST_RUN", source))?;
        Ok(TestRun { value, run_ns })
    }
}

impl AsFd for Program {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Result of a test run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TestRun {
    /// The program's result.
    pub(crate) value: u32,
    /// Mean time of a run in ns.
    pub(crate) run_ns: u32,
}

/// A signal ends a test run early.
fn retry_interrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            outcome => return outcome,
        }
    }
}

#[cold]
fn verifier_log(name: &str, code: &[Instruction]) -> String {
    let mut log = vec![0; LOG_LEN];
    // It is expected to fail again; a full log contains the beginning.
    let _ = sys::load(name, code, &mut log);
    let len = log.iter().position(|&byte| byte == 0).unwrap_or(log.len());
    String::from_utf8_lossy(&log[..len]).into_owned()
}

/// Size of the buffer for the verifier's log in bytes, enough for any program of this crate.
const LOG_LEN: usize = 4 << 20;
const ETHERNET_LEN: usize = 14;
/// Offset of `gso_size` in `struct __sk_buff`, and length of that structure, in words.
const CONTEXT_GSO_SIZE: usize = 44;
const CONTEXT_WORDS: usize = 48;
