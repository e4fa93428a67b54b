//! Completes command lines: the shell's script calls the command, which knows the policies and their keys.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;

use clap::CommandFactory;
use clap_complete::engine::{CompletionCandidate, PathCompleter, ValueCompleter, complete};
use clap_complete::env::{Bash, CompleteEnv, Elvish, EnvCompleter, Fish, Powershell, Shells, Zsh};

use super::args::Arguments;
use crate::policy::{Policy, builtin_names, overrides_beginning_with};

/// The variable that requests completions, and names the shell.
const VARIABLE: &str = "SANDFORK_COMPLETE";

/// The variable that holds the separator of completions for bash.
const SEPARATOR: &str = "_CLAP_IFS";

/// The variable that holds the index of the word that bash completes.
const INDEX: &str = "_CLAP_COMPLETE_INDEX";

const SHELLS: Shells = Shells(&[&WholeWords, &Elvish, &Fish, &Powershell, &Zsh]);

/// Answers a shell that requests completions, and exits. Otherwise does nothing. Must be called before the process has
/// a second thread.
pub fn answer_shell() {
    let completions = CompleteEnv::with_factory(Arguments::command);
    completions.var(VARIABLE).shells(SHELLS).complete();
}

/// Returns the script that registers the completions in a shell.
pub fn script(shell: &str) -> io::Result<Vec<u8>> {
    let completer = SHELLS.completer(shell);
    let completer = completer.ok_or_else(|| io::Error::other("the shell is not known"))?;
    let mut script = Vec::new();
    completer.write_registration(VARIABLE, "sandfork", "sandfork", "sandfork", &mut script)?;
    Ok(script)
}

/// Completes built-in policies, policy files, and directories.
pub fn policies(current: &OsStr) -> Vec<CompletionCandidate> {
    let begun = current.to_string_lossy();
    let names = builtin_names().filter(|name| name.starts_with(&*begun));
    let described = |name| {
        let policy = Policy::builtin(name)?;
        Some(CompletionCandidate::new(name).help(Some(policy.description().to_owned().into())))
    };
    let is_policy = |path: &Path| path.is_dir() || path.extension() == Some(OsStr::new("toml"));
    let files = PathCompleter::any().filter(is_policy).complete(current);
    names.filter_map(described).chain(files).collect()
}

/// Completes policy keys and their enumerated values.
pub fn overrides(current: &OsStr) -> Vec<CompletionCandidate> {
    let found = overrides_beginning_with(&current.to_string_lossy()).into_iter();
    let candidate = |(whole, about): (String, &'static str)| {
        let about = (!about.is_empty()).then(|| about.into());
        CompletionCandidate::new(whole).help(about)
    };
    found.map(candidate).collect()
}

/// Bash, which splits `KEY=VALUE` into three words and replaces only the last.
struct WholeWords;

impl EnvCompleter for WholeWords {
    fn name(&self) -> &'static str {
        Bash.name()
    }

    fn is(&self, name: &str) -> bool {
        Bash.is(name)
    }

    fn write_registration(
        &self,
        var: &str,
        name: &str,
        bin: &str,
        completer: &str,
        buf: &mut dyn io::Write,
    ) -> io::Result<()> {
        let mut script = Vec::new();
        Bash.write_registration(var, name, bin, completer, &mut script)?;
        // After `=`, bash's current word is empty, and the script would drop the `=`.
        let script = String::from_utf8_lossy(&script).replace(
            "words[COMP_CWORD]=\"$2\"",
            "[[ \"${words[COMP_CWORD]}\" == \"=\" ]] || words[COMP_CWORD]=\"$2\"",
        );
        buf.write_all(script.as_bytes())
    }

    fn write_complete(
        &self,
        cmd: &mut clap::Command,
        args: Vec<OsString>,
        current_dir: Option<&Path>,
        buf: &mut dyn io::Write,
    ) -> io::Result<()> {
        let index = env::var(INDEX).ok().and_then(|index| index.parse().ok());
        let (words, index, before) = joined(args, index.unwrap_or_default());
        let separator = env::var(SEPARATOR).unwrap_or_else(|_| "\n".to_owned());
        let found = complete(cmd, words, index, current_dir)?;
        let words: Vec<String> = found
            .iter()
            .map(|found| found.get_value().to_string_lossy().into_owned())
            .map(|word| word.strip_prefix(&before).unwrap_or(&word).to_owned())
            .collect();
        buf.write_all(words.join(&separator).as_bytes())
    }
}

/// Joins the words around each `=`. Returns the words, the new index of the word at `index`, and the text that was
/// joined before it.
fn joined(words: Vec<OsString>, index: usize) -> (Vec<OsString>, usize, String) {
    let mut whole: Vec<OsString> = Vec::new();
    let (mut found, mut before, mut ends_open) = (0, String::new(), false);
    for (number, word) in words.into_iter().enumerate() {
        let is_sign = word == "=" && whole.len() > 1;
        match whole.last_mut().filter(|_| is_sign || ends_open) {
            Some(last) => {
                if number == index {
                    let sign = if is_sign { "=" } else { "" };
                    before = format!("{}{sign}", last.to_string_lossy());
                }
                last.push(word);
            }
            None => whole.push(word),
        }
        ends_open = is_sign;
        if number == index {
            found = whole.len() - 1;
        }
    }
    // An index past the last word stands for an empty word.
    let index = if index >= whole.len() && found == 0 {
        whole.len()
    } else {
        found
    };
    (whole, index, before)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bash_words_around_an_equals_sign_are_joined() {
        // Words separated by spaces, and the index of the word to complete.
        let cases = [
            (("s run --set a.b = c", 5), ("s run --set a.b=c", 3, "a.b=")),
            (("s run --set a.b =", 4), ("s run --set a.b=", 3, "a.b=")),
            (("s --policy = st x", 4), ("s --policy=st x", 2, "")),
            (("s --policy = st", 3), ("s --policy=st", 1, "--policy=")),
            (("s run ", 2), ("s run ", 2, "")),
        ];
        let split = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
        for ((words, index), (whole, new_index, before)) in cases {
            let found = joined(split(words), index);
            assert_eq!(
                found,
                (split(whole), new_index, before.to_owned()),
                "{words}"
            );
        }
    }
}
