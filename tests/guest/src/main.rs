//! Boots a guest by hand: a shell in it, or a program of the host.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use tapswitch_guest::{Error, Guest, Kernel, Series};

/// Boots a Linux kernel of Debian in QEMU, and gives a shell or runs a program in it.
#[derive(Debug, Parser)]
struct Args {
    /// The kernel.
    #[arg(long, value_enum, default_value = "7.3")]
    linux: Linux,
    /// A module to load; may be given several times.
    #[arg(long, value_name = "NAME")]
    module: Vec<String>,
    /// A file of the host to copy to /root, programs with their libraries; may be given several
    /// times.
    #[arg(long, value_name = "PATH")]
    file: Vec<PathBuf>,
    /// A program of the host to put into /bin, in place of busybox's of that name; may be given
    /// several times.
    #[arg(long, value_name = "NAME")]
    bin: Vec<String>,
    /// Memory in MiB.
    #[arg(long, value_name = "MIB", default_value_t = 512)]
    memory: u32,
    /// Number of processors.
    #[arg(long, value_name = "COUNT", default_value_t = 2)]
    cpus: u32,
    /// Let the guest's clock count instructions, one per nanosecond, and skip idle time: for
    /// measurements.
    #[arg(long)]
    instruction_clock: bool,
    /// How long a program may take, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    limit: u64,
    /// A program of the host, and its arguments; without it, a shell.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    program: Vec<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Linux {
    #[value(name = "6.1")]
    V6_1,
    #[value(name = "7.3")]
    V7_3,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("tapswitch-guest: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<ExitCode, Error> {
    let series = match args.linux {
        Linux::V6_1 => Series::V6_1,
        Linux::V7_3 => Series::V7_3,
    };
    let kernel = Kernel::of(series)?;
    let (program, rest) = match args.program.split_first() {
        Some((program, rest)) => (program.as_str(), rest),
        None => (SHELL, &[][..]),
    };
    let mut guest = Guest::new(&kernel, program)
        .args(rest)
        .modules(&args.module)
        .memory_mib(args.memory)
        .cpus(args.cpus)
        .limit(Duration::from_secs(args.limit));
    if args.instruction_clock {
        guest = guest.instruction_clock();
    }
    for path in &args.file {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        guest = guest.file(path, format!("/root/{name}"));
    }
    for name in &args.bin {
        guest = guest.bin(name)?;
    }
    if args.program.is_empty() {
        eprintln!("Linux {}; leave the shell by `exit`, QEMU by Ctrl-A X", kernel.release());
        guest.shell()?;
        return Ok(ExitCode::SUCCESS);
    }
    let outcome = guest.run()?;
    print!("{}", outcome.output);
    eprintln!("exit status {} after {:.1} s", outcome.status, outcome.took.as_secs_f64());
    Ok(u8::try_from(outcome.status).map_or(ExitCode::FAILURE, ExitCode::from))
}

/// A program that every machine has; it is not run.
const SHELL: &str = "/bin/sh";
