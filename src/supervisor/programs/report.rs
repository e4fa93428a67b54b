//! What the process that starts programs says. Guest code may say the same. Pure.

use serde::Deserialize;

use crate::protocol::{Frame, FrameLimits};

/// The bounds of what it says, bytes.
pub const REPORTS: FrameLimits = FrameLimits {
    header: 256,
    payload: 0,
};

/// One report of a program, by the number that the supervisor gave it.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Report {
    /// It runs.
    Started {
        /// The program's number.
        id: u64,
        /// The number of its process in the sandbox. No decision is made by it.
        pid: i32,
    },
    /// It could not be started.
    Failed {
        /// The program's number.
        id: u64,
        /// Why.
        errno: i32,
    },
    /// It has ended.
    Ended {
        /// The program's number.
        id: u64,
        /// Its exit status.
        #[serde(default)]
        code: Option<u8>,
        /// The signal that ended it.
        #[serde(default)]
        signal: Option<i32>,
    },
}

impl Report {
    /// Reads a frame.
    ///
    /// # Errors
    ///
    /// When it is no report. Holds how, as part of a sentence.
    pub fn parse(frame: &Frame) -> Result<Self, String> {
        let report = serde_json::from_slice(&frame.header);
        let report = report.map_err(|error| format!("a report of a program is wrong: {error}"))?;
        match report {
            Self::Ended {
                code: None,
                signal: None,
                ..
            } => Err("it reported a program that ended in no way".to_owned()),
            Self::Started { pid, .. } if pid <= 0 => {
                Err(format!("it reported a program with the number {pid}"))
            }
            report => Ok(report),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(header: &str) -> Result<Report, String> {
        Report::parse(&Frame {
            header: header.into(),
            payload: Vec::new(),
        })
    }

    #[test]
    fn what_a_starter_says_is_read() {
        let started = parsed(r#"{"kind":"started","id":3,"pid":7}"#);
        assert_eq!(started, Ok(Report::Started { id: 3, pid: 7 }));
        let ended = parsed(r#"{"kind":"ended","id":3,"signal":9}"#);
        let expected = Report::Ended {
            id: 3,
            code: None,
            signal: Some(9),
        };
        assert_eq!(ended, Ok(expected));
    }

    #[test]
    fn what_no_starter_says_is_refused() {
        for wrong in [
            "",
            "[]",
            r#"{"kind":"ended","id":3}"#,
            r#"{"kind":"ended","id":3,"code":256}"#,
            r#"{"kind":"ended","id":-1,"code":0}"#,
            r#"{"kind":"started","id":1,"pid":0}"#,
            r#"{"kind":"started","id":1,"pid":-1}"#,
            r#"{"kind":"other","id":1}"#,
        ] {
            parsed(wrong).expect_err(wrong);
        }
    }
}
