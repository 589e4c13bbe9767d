//! The processes of a measurement, each this program with a task.
//!
//! Each is a separate process, because a thread that shares its file table with others pays two
//! atomic operations for each read(2) and write(2), which a single-threaded program does not. The
//! task is passed as JSON, and the result returned as JSON, in the last line of the output.

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tapswitch_netlink::Namespace;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout};

use crate::process;

use super::forward::Forward;
use super::ready::READY;
use super::reflect::Reflect;
use super::traffic::{Send, Sink};
use super::write_cost::WriteCost;

type Failure = Box<dyn std::error::Error>;

/// The task of one process.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Task {
    /// Creates a device and returns the frames from it.
    Reflect(Reflect),
    /// Creates two devices and forwards between them.
    Forward(Forward),
    /// Sends traffic.
    Send(Send),
    /// Receives traffic.
    Sink(Sink),
    /// Writes small frames.
    WriteCost(WriteCost),
}

impl Task {
    /// Executes the task in this process.
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

fn finish(outcome: &impl Serialize) -> Result<(), Failure> {
    say!("{}", serde_json::to_string(outcome)?);
    Ok(())
}

/// A process that executes a task. It is killed on drop.
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

    /// Waits at most `limit` for its result.
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

const START_LIMIT: Duration = Duration::from_secs(10);
