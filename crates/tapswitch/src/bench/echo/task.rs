//! The processes that a measurement takes, each this program again with a task of its own.
//!
//! A process of its own for each, because a thread that shares its table of files with others pays
//! two atomic operations for each read(2) and write(2), which a program with one thread does not.
//! The task goes there as JSON, the outcome comes back as JSON, the last line of its output.

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tapswitch_netlink::Namespace;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout};

use crate::process;

use super::forward::Forward;
use super::reflect::Reflect;
use super::traffic::{Send, Sink};
use super::write_cost::WriteCost;

type Failure = Box<dyn std::error::Error>;

/// What one process does.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Task {
    /// Makes a device and returns what comes out of it.
    Reflect(Reflect),
    /// Makes two devices and forwards between them.
    Forward(Forward),
    /// Sends.
    Send(Send),
    /// Takes what was sent.
    Sink(Sink),
    /// Writes small frames.
    WriteCost(WriteCost),
}

impl Task {
    /// Does it, in this process.
    pub(super) fn run(self) -> Result<(), Failure> {
        match self {
            Self::Reflect(task) => finish(&task.run().map_err(|error| error.to_string())?),
            Self::Forward(task) => finish(&task.run()?),
            Self::Send(task) => finish(&task.run()?),
            Self::Sink(task) => finish(&task.run()?),
            Self::WriteCost(task) => finish(&task.run()?),
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Reflect(_) => "the echo",
            Self::Forward(_) => "the forwarder",
            Self::Send(_) => "the sender",
            Self::Sink(_) => "the receiver",
            Self::WriteCost(_) => "the writer",
        }
    }
}

/// Tells the starter that the others may start.
pub(super) fn announce() {
    say!("{READY}");
}

fn finish(outcome: &impl Serialize) -> Result<(), Failure> {
    say!("{}", serde_json::to_string(outcome)?);
    Ok(())
}

/// A process at work on a task. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Part {
    name: &'static str,
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Part {
    /// Starts a process for `task` inside `namespace`.
    pub(super) fn start(namespace: &Namespace, task: &Task) -> Result<Self, Failure> {
        let program = std::env::current_exe()?;
        let text = serde_json::to_string(task)?;
        let args = ["bench", "echo-part", &text];
        let mut command = process::command(namespace, &program.to_string_lossy(), &args);
        command.stdout(std::process::Stdio::piped());
        let mut child = command.spawn()?;
        let stdout = child.stdout.take().ok_or("a process without output")?;
        let lines = BufReader::new(stdout).lines();
        Ok(Self { name: task.name(), child, lines })
    }

    /// The same, and waits until it is ready.
    pub(super) async fn start_ready(namespace: &Namespace, task: &Task) -> Result<Self, Failure> {
        let mut part = Self::start(namespace, task)?;
        match part.line(START_LIMIT).await? {
            line if line == READY => Ok(part),
            line => Err(format!("{}: printed '{line}' instead of being ready", part.name).into()),
        }
    }

    /// Waits at most `limit` for what it has found out.
    pub(super) async fn outcome<T: DeserializeOwned>(
        mut self,
        limit: Duration,
    ) -> Result<T, Failure> {
        let line = self.line(limit).await?;
        self.child.wait().await?;
        Ok(serde_json::from_str(&line)?)
    }

    async fn line(&mut self, limit: Duration) -> Result<String, Failure> {
        let name = self.name;
        let line = tokio::time::timeout(limit, self.lines.next_line())
            .await
            .map_err(|_| format!("{name}: no answer within {limit:?}"))??;
        line.ok_or_else(|| format!("{name}: exited without an answer").into())
    }
}

const READY: &str = "ready";
const START_LIMIT: Duration = Duration::from_secs(10);
