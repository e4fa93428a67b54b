//! `SANDFORK_LOG`: prints the library's `tracing` output on stderr, one line for each span that
//! ends and for each event.

use thiserror::Error;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::fmt::format::FmtSpan;

const VARIABLE: &str = "SANDFORK_LOG";

/// The value is not a level.
#[derive(Debug, Error)]
#[error("{VARIABLE} is {0:?}: give off, error, warn, info, debug or trace")]
pub struct LogError(String);

/// Starts logging at the level that the variable sets.
pub fn begin() -> Result<(), LogError> {
    let Some(wanted) = std::env::var_os(VARIABLE).filter(|wanted| !wanted.is_empty()) else {
        return Ok(());
    };
    let wanted = wanted.to_string_lossy().into_owned();
    // `tracing` also accepts numbers as levels; this command does not.
    let is_word = wanted.chars().all(|c| c.is_ascii_alphabetic());
    match wanted.parse::<LevelFilter>() {
        Ok(LevelFilter::OFF) => Ok(()),
        Ok(level) if is_word => {
            tracing_subscriber::fmt()
                .with_max_level(level)
                .with_span_events(FmtSpan::CLOSE)
                .with_writer(std::io::stderr)
                // A stderr that is closed is no reason for a message on it.
                .log_internal_errors(false)
                .with_ansi(false)
                .with_target(false)
                .with_timer(())
                .init();
            Ok(())
        }
        _ => Err(LogError(wanted)),
    }
}
