//! Parses the reports of the starter process. Guest code can forge them. Pure.

use serde::Deserialize;

use crate::protocol::{Frame, FrameLimits};

/// The size limits of a report in bytes.
pub const REPORTS: FrameLimits = FrameLimits {
    header: 256,
    payload: 0,
};

/// One report about a program, identified by the number that the supervisor gave it.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Report {
    /// The program runs.
    Started {
        /// The program's number.
        id: u64,
        /// Its pid in the sandbox. No decision depends on it.
        pid: i32,
    },
    /// The program could not be started.
    Failed {
        /// The program's number.
        id: u64,
        /// The errno of the failed start.
        errno: i32,
    },
    /// The program has ended.
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
    /// Parses a report from a frame.
    ///
    /// # Errors
    ///
    /// If it is not a report. Holds the reason, as part of a sentence.
    pub fn parse(frame: &Frame) -> Result<Self, String> {
        let report = serde_json::from_slice(&frame.header);
        let report =
            report.map_err(|error| format!("a report about a program is invalid: {error}"))?;
        match report {
            Self::Ended {
                code: None,
                signal: None,
                ..
            } => Err("it reported the end of a program without a status or signal".to_owned()),
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
    fn valid_reports_are_parsed() {
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
    fn invalid_reports_are_refused() {
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
