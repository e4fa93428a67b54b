//! Converts results into content for a model: tagged text and images.

use std::borrow::Cow;
use std::fmt::Write as _;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rmcp::model::{CallToolResult, ContentBlock};
use sandfork::Status;
use sandfork::session::{CellReport, DisplayOutput};

use crate::display::value_text;
use crate::failure::Failure;
use crate::http::Budget;
use crate::shortened;

/// The maximum number of characters of each text. The middle of a longer text is omitted.
pub const MAX_TEXT: usize = 20_000;

/// Describes a cell: its status, output, value and images.
///
/// # Errors
/// Returns an error if there is not enough memory for the images.
pub fn described(report: &CellReport, budget: &Budget) -> Result<CallToolResult, Failure> {
    let outcome = report.outcome();
    let mut text = format!("<status>{}</status>", outcome.status());
    // A string is shown without quotes.
    let own = outcome
        .value()
        .and_then(|value| value.text(&report.buffers()));
    let traceback = outcome.error().map(|error| &*error.traceback);
    let limit = outcome.limit().map(|hit| hit.name.key());
    // The other statuses imply the exit code.
    let code = matches!(outcome.status(), Status::Exit | Status::Signal)
        .then(|| outcome.exit_code().to_string());
    for (name, part) in [
        ("exit_code", code.map(Cow::Owned)),
        ("output", Some(outcome.stdout())),
        ("error_output", Some(outcome.stderr())),
        ("return_value", own.or_else(|| value_text(report))),
        ("error", traceback.map(Cow::Borrowed)),
        ("limit", limit.map(Cow::Borrowed)),
    ] {
        if let Some(part) = part.filter(|part| !part.is_empty()) {
            // Writing to a string does not fail.
            let _ = write!(
                text,
                "\n<{name}>\n{}\n</{name}>",
                escape_tags(&shortened(part.trim_end().as_bytes(), MAX_TEXT))
            );
        }
    }
    let mut content = vec![ContentBlock::text(text)];
    let images: Vec<_> = report.shown().iter().filter_map(image).collect();
    let bytes = images
        .iter()
        .map(|(_, bytes)| bytes.len() as u64)
        .sum::<u64>();
    // The size in base64. The transport reserves the memory of the response from then on.
    let _held = budget.hold(bytes.div_ceil(3) * 4)?;
    for (kind, bytes) in images {
        content.push(ContentBlock::image(STANDARD.encode(bytes), kind));
    }
    Ok(if outcome.exit_code() == 0 {
        CallToolResult::success(content)
    } else {
        CallToolResult::error(content)
    })
}

/// Returns the image of a display and its media type.
fn image(display: &DisplayOutput) -> Option<(&'static str, &[u8])> {
    ["image/png", "image/jpeg"].into_iter().find_map(|kind| {
        let bytes = display.data().get(kind)?.bytes(&display.buffers())?;
        Some((kind, bytes))
    })
}

/// The tags of a description.
const TAGS: [&str; 7] = [
    "status",
    "exit_code",
    "output",
    "error_output",
    "return_value",
    "error",
    "limit",
];

/// Escapes a guest's text so that it cannot end its part or start another: the `<` of such a tag becomes `&lt;`.
fn escape_tags(text: &str) -> String {
    let mut pieces = text.split('<');
    let mut escaped = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let name = piece.trim_start_matches(|before: char| before == '/' || before.is_whitespace());
        let is_tag = TAGS.iter().any(|tag| name.starts_with(tag));
        escaped.push_str(if is_tag { "&lt;" } else { "<" });
        escaped.push_str(piece);
    }
    escaped
}

/// Quotes a name that contains line breaks or control characters, which could begin another line or change how a
/// terminal shows this one, or that begins with a quote.
pub fn quote_if_needed(name: &str) -> Cow<'_, str> {
    let is_plain =
        |character: char| character.escape_debug().len() == 1 || "\"'\\".contains(character);
    if name.chars().all(is_plain) && !name.starts_with('"') {
        return Cow::Borrowed(name);
    }
    Cow::Owned(format!("{name:?}"))
}

/// Returns a text result.
pub fn text(text: String) -> CallToolResult {
    CallToolResult::success(vec![ContentBlock::text(text)])
}
