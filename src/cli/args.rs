//! Defines the command line's arguments with clap's derive macros.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process;

use clap::builder::{OsStringValueParser, StyledStr, TypedValueParser};
use clap::error::{ContextKind, ContextValue};
use clap::{Args, CommandFactory as _, Parser, Subcommand, value_parser};
use clap_complete::Shell;
use clap_complete::engine::ArgValueCompleter;

use super::complete::{overrides, policies};
use super::env::EnvCommand;
use super::learn::Accept;
use super::terminal::harmless;
use super::tip::tip;
use sandfork_jail::control::MAX_WORKERS;

/// Run untrusted Python in a fresh, sealed Linux sandbox.
#[derive(Debug, Parser)]
#[command(
    name = "sandfork",
    version,
    max_term_width = 100,
    after_help = "Exit codes: the guest's own; 1 uncaught exception; 2 usage; 122 protocol violation; \
        123 limit on processes, output or files; 124 limit on time; 125 no sandbox could be provided; \
        126 and 127 program not started or not found; 130 interrupted; 137 memory limit; 128+n signal n.\n\n\
        SANDFORK_LOG=debug in the environment prints the time of each phase of a run to stderr."
)]
pub struct Arguments {
    /// The command to run.
    #[command(subcommand)]
    pub command: Command,
}

impl Arguments {
    /// Parses the command line. Like clap, prints help or an error and exits if necessary.
    pub fn read() -> Self {
        Self::try_parse().unwrap_or_else(|mut error| {
            if let Some(tip) = tip(&error, &Self::command()) {
                let tips = vec![StyledStr::from(tip)];
                error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
            }
            exit_with(&error)
        })
    }
}

/// Prints help or an error about the command line, and exits. An error may quote a file name, because a shell expands
/// patterns to names. If an argument has control characters, the message is printed without colours, and with those
/// characters escaped.
fn exit_with(error: &clap::Error) -> ! {
    let has_controls = |argument: OsString| argument.to_string_lossy().contains(char::is_control);
    if !error.use_stderr() || !std::env::args_os().any(has_controls) {
        error.exit()
    }
    // If stderr is closed, the message is lost.
    _ = write!(io::stderr(), "{}", harmless(&error.to_string()));
    process::exit(error.exit_code())
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a Python script in a fresh sandbox
    Run(RunArguments),
    /// Run any program in a fresh sandbox
    Exec(ExecArguments),
    /// Run Python, and write the policy that lets it pass
    Learn(LearnArguments),
    /// Start a Python shell in a session that keeps its variables and files
    Shell(ShellArguments),
    /// Run many tasks, each in a fresh sandbox
    Map(MapArguments),
    /// Show what would be enforced on this host, and how
    Plan(PlanArguments),
    /// Check whether this host supports each layer, and print the fix for missing ones
    Doctor(DoctorArguments),
    /// List, show, check and compare policies
    #[command(subcommand)]
    Policy(PolicyCommand),
    /// Install packages in environments for guests, and list, show and remove them
    #[command(subcommand)]
    Env(EnvCommand),
    /// Serve sandboxes over HTTP
    #[command(disable_help_flag = true)]
    Server(ServerArguments),
    /// Serve the sandbox as tools of a model (MCP), over the standard streams
    #[command(disable_help_flag = true)]
    Mcp(ServerArguments),
    /// Serve sessions to the parent process, over a socket that this process inherits
    #[command(hide = true)]
    Serve {
        /// Descriptor number of the control socket
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(3..))]
        control_fd: i32,
    },
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
}

/// `sandfork server` and `sandfork mcp`.
#[derive(Args, Debug)]
pub struct ServerArguments {
    /// Arguments for the program `sandfork-server`
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "ARGUMENT"
    )]
    pub arguments: Vec<OsString>,
}

/// The policy options of a command.
#[derive(Args, Debug)]
pub struct PolicyChoice {
    /// A built-in policy, or a policy file
    #[arg(
        long,
        short,
        value_name = "NAME|FILE",
        default_value = "standard",
        add = ArgValueCompleter::new(policies)
    )]
    pub policy: String,
    /// Override one key of the policy: `--set limits.wall=2s`
    #[arg(
        long = "set",
        value_name = "KEY=VALUE",
        add = ArgValueCompleter::new(overrides)
    )]
    pub overrides: Vec<String>,
}

/// The options of a command that runs one guest.
#[derive(Args, Debug)]
pub struct GuestOptions {
    #[command(flatten)]
    pub policy: PolicyChoice,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// Show everything that the guest is known to have been refused, and the settings that allow it
    #[arg(long)]
    pub explain: bool,
    #[command(flatten)]
    pub transfer: TransferChoice,
}

/// The input and files that are copied for a guest.
#[derive(Args, Debug)]
pub struct TransferChoice {
    /// Pass stdin to the guest, as `--set stdio.stdin=pass` does
    #[arg(long = "stdin", short = 'i')]
    pub passes_stdin: bool,
    /// Copy this file into the work directory before the run
    #[arg(long = "in", value_name = "FILE")]
    pub inputs: Vec<PathBuf>,
    /// Copy this file out of the work directory after the run
    #[arg(long = "out", value_name = "FILE")]
    pub outputs: Vec<PathBuf>,
}

/// `sandfork run`.
#[derive(Args, Debug)]
#[command(override_usage = "sandfork run [OPTIONS] <FILE|DIR|-|-c CODE|-m MODULE> [ARG...]")]
pub struct RunArguments {
    #[command(flatten)]
    pub options: GuestOptions,
    /// Give the script its own terminal, connected to this one
    #[arg(long, short, conflicts_with = "json")]
    pub terminal: bool,
    #[command(flatten)]
    pub target: TargetChoice,
}

/// Parses code, which must be UTF-8. clap's own error for other text does not name the argument.
fn code() -> impl TypedValueParser<Value = String> {
    let not_text = |_| "the code is not UTF-8; save it in a file that declares its encoding";
    OsStringValueParser::new().try_map(move |code| code.into_string().map_err(not_text))
}

/// The Python code to run.
#[derive(Args, Debug)]
pub struct TargetChoice {
    /// Run this code
    #[arg(short = 'c', value_name = "CODE", allow_hyphen_values = true, value_parser = code())]
    pub code: Option<String>,
    /// Run this module, installed or in the project, with these arguments
    #[arg(
        short = 'm',
        value_names = ["MODULE", "ARG"],
        num_args = 1..,
        allow_hyphen_values = true,
        conflicts_with = "code"
    )]
    pub module: Option<Vec<String>>,
    /// Let the guest read the script's directory, or DIR, and import from it
    #[arg(long, value_name = "DIR", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub project: Option<String>,
    /// Run this file, or the `__main__.py` in this directory, which becomes the project; `-` reads the script from
    /// stdin. All arguments after it are passed to the script as `sys.argv[1:]`
    #[arg(
        value_names = ["FILE", "ARG"],
        value_hint = clap::ValueHint::AnyPath,
        num_args = 1..,
        trailing_var_arg = true,
        required_unless_present_any = ["code", "module"]
    )]
    pub rest: Vec<OsString>,
}

/// `sandfork learn`.
#[derive(Args, Debug)]
#[command(
    override_usage = "sandfork learn [OPTIONS] <FILE|DIR|-|-c CODE|-m MODULE> [ARG...]",
    after_help = "Without --accept, you are asked at the terminal about each refusal. Each run starts the script from \
        the beginning, so its changes to paths of filesystem.write are repeated. Exit codes: 0 the script passes; \
        2 usage; otherwise that of the script's last run."
)]
pub struct LearnArguments {
    #[command(flatten)]
    pub policy: PolicyChoice,
    /// Allow refusals of these kinds without asking: read, write, import, net, host, program, proc, syscall and limit,
    /// each alone or with a value, as in `read:/srv,limit:memory`
    #[arg(long, value_name = "KIND[:VALUE]", value_delimiter = ',')]
    pub accept: Vec<Accept>,
    /// Write the policy to this file instead of stdout
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub target: TargetChoice,
}

/// `sandfork exec`.
#[derive(Args, Debug)]
#[command(override_usage = "sandfork exec [OPTIONS] -- PROGRAM [ARG...]")]
pub struct ExecArguments {
    #[command(flatten)]
    pub options: GuestOptions,
    /// Give the program its own terminal, connected to this one
    #[arg(long, short, conflicts_with = "json")]
    pub terminal: bool,
    /// The program, looked up in the sandbox, and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    pub argv: Vec<String>,
}

/// `sandfork shell`.
#[derive(Args, Debug)]
#[command(
    after_help = "If stdin is not a terminal, its statements run one after another until one fails."
)]
pub struct ShellArguments {
    #[command(flatten)]
    pub policy: PolicyChoice,
    /// Keep no history [default: in $XDG_STATE_HOME/sandfork or ~/.local/state/sandfork]
    #[arg(long)]
    pub no_history: bool,
}

/// `sandfork map`.
#[derive(Args, Debug)]
#[command(
    after_help = "Exit codes: 0 every task ran, however it ended; 1 the results could not be written; \
    2 usage, or an invalid line of TASKS; 125 a task got no sandbox; 130 interrupted."
)]
#[allow(clippy::struct_excessive_bools)] // one per flag
pub struct MapArguments {
    #[command(flatten)]
    pub policy: PolicyChoice,
    /// How many tasks run at once [default: the number of processors]
    #[arg(long, short, value_name = "N", value_parser = value_parser!(u16).range(1..=MAX_JOBS))]
    pub jobs: Option<u16>,
    /// Write the results to this file instead of stdout
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Continue after the results that the file of `--output` already has
    #[arg(long, requires = "output")]
    pub resume: bool,
    /// Write the results in the order of the tasks, not as they finish
    #[arg(long)]
    pub ordered: bool,
    /// Refuse `file`, `program` and `policy`, for tasks from untrusted authors
    #[arg(long)]
    pub code_only: bool,
    /// Write short results: status, output, value, error, and little more
    #[arg(long)]
    pub compact: bool,
    /// Draw no progress bar, even on a terminal
    #[arg(long)]
    pub no_progress: bool,
    /// The tasks, one JSON object per line; `-` reads them from stdin
    #[arg(value_name = "TASKS")]
    pub tasks: PathBuf,
}

/// The maximum number of tasks that run at once.
const MAX_JOBS: i64 = MAX_WORKERS as i64;

/// `sandfork plan`.
#[derive(Args, Debug)]
pub struct PlanArguments {
    #[command(flatten)]
    pub policy: PolicyChoice,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `sandfork doctor`.
#[derive(Args, Debug)]
pub struct DoctorArguments {
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// The commands of `sandfork policy`.
#[derive(Debug, Subcommand)]
pub enum PolicyCommand {
    /// List the built-in policies
    List,
    /// Print a policy as it takes effect, with what it extends
    Show {
        /// A built-in policy, or a policy file
        #[arg(value_name = "NAME|FILE", add = ArgValueCompleter::new(policies))]
        policy: String,
    },
    /// Check policy files: print each mistake, and what this host would refuse
    Check {
        /// Check only what holds on every host: no paths, packages or kernel features
        #[arg(long)]
        any_host: bool,
        /// Built-in policies, or policy files
        #[arg(
            required = true,
            value_name = "NAME|FILE",
            add = ArgValueCompleter::new(policies)
        )]
        policies: Vec<String>,
    },
    /// Print the keys in which two policies differ, and which policy allows more
    Diff {
        /// A built-in policy, or a policy file
        #[arg(value_name = "A", add = ArgValueCompleter::new(policies))]
        before: String,
        /// The policy to compare it with
        #[arg(value_name = "B", add = ArgValueCompleter::new(policies))]
        after: String,
    },
    /// Print the JSON Schema of a policy file, for editors
    Schema,
}
