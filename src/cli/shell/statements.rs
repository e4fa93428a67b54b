//! Where a statement of Python ends, as far as lines and brackets tell. The guest's parser has the last word.

/// What the end of a text is within.
#[derive(Debug, Default)]
struct Scan {
    /// Brackets that are open.
    depth: usize,
    /// The quotes that end the string.
    string: Option<(char, bool)>,
    /// Whether a backslash joins the next line.
    is_joined: bool,
    /// Whether a line began a block, or decorates one.
    has_block: bool,
    /// Whether the last line is a decorator.
    is_decorator: bool,
}

impl Scan {
    fn of(text: &str) -> Self {
        let mut scan = Self::default();
        for line in text.lines() {
            scan.line(line);
        }
        scan
    }

    fn line(&mut self, line: &str) {
        let begins = !self.is_open();
        self.is_joined = false;
        let mut last = None;
        let mut rest = line;
        while let Some(character) = rest.chars().next() {
            rest = &rest[character.len_utf8()..];
            if character == '\\' {
                self.is_joined = rest.is_empty();
                let escaped = rest.chars().next().map_or(0, char::len_utf8);
                rest = &rest[escaped..];
            } else if let Some((quote, is_triple)) = self.string {
                let end = if is_triple { 3 } else { 1 };
                let whole = quote.to_string().repeat(end - 1);
                if character == quote && rest.starts_with(&whole) {
                    rest = &rest[whole.len()..];
                    self.string = None;
                }
            } else if character == '#' {
                break;
            } else {
                rest = self.outside(character, rest);
            }
            if !character.is_whitespace() {
                last = Some(character);
            }
        }
        if !self.is_joined && self.string.is_some_and(|(_, is_triple)| !is_triple) {
            // A mistake, which the guest's parser reports.
            self.string = None;
        }
        if begins && !line.trim().is_empty() {
            self.is_decorator = line.starts_with('@');
        }
        self.has_block |= self.is_decorator || (!self.is_open() && last == Some(':'));
    }

    /// A character that is in no string and no comment. Returns what is left of the line.
    fn outside<'t>(&mut self, character: char, rest: &'t str) -> &'t str {
        match character {
            '\'' | '"' => {
                let two = character.to_string().repeat(2);
                let tail = rest.strip_prefix(&two);
                self.string = Some((character, tail.is_some()));
                return tail.unwrap_or(rest);
            }
            '(' | '[' | '{' => self.depth += 1,
            ')' | ']' | '}' => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
        rest
    }

    fn is_open(&self) -> bool {
        self.depth > 0 || self.string.is_some() || self.is_joined
    }
}

/// Whether a person who typed this has more to type. An empty line ends a block.
pub fn needs_more(text: &str) -> bool {
    let scan = Scan::of(text);
    let is_ended = text
        .lines()
        .next_back()
        .is_none_or(|line| line.trim().is_empty());
    scan.is_open() || (scan.has_block && !is_ended)
}

/// How the next line is indented after this text.
pub fn indentation(text: &str) -> String {
    let Some(last) = text.lines().next_back() else {
        return String::new();
    };
    let code = last.trim_start();
    let mut indentation = last[..last.len() - code.len()].to_owned();
    let scan = Scan::of(code);
    if scan.has_block && !scan.is_decorator {
        indentation.push_str("    ");
    }
    indentation
}

/// The statements of a script, each with the number of lines before it. What is blank is left out.
pub fn split(script: &str) -> Vec<(usize, String)> {
    let lines: Vec<&str> = script.lines().collect();
    let mut statements = Vec::new();
    let mut first = 0;
    let mut scan = Scan::default();
    for (number, line) in lines.iter().enumerate() {
        scan.line(line);
        let next = lines[number + 1..].iter().find(|line| !is_blank(line));
        let goes_on = next.is_some_and(|next| {
            scan.is_open() || scan.is_decorator || (scan.has_block && continues(next))
        });
        if goes_on {
            continue;
        }
        let statement = &lines[first..=number];
        if !statement.iter().all(|line| is_blank(line)) {
            statements.push((first, statement.join("\n")));
        }
        first = number + 1;
        scan = Scan::default();
    }
    statements
}

fn is_blank(line: &str) -> bool {
    let code = line.trim_start();
    code.is_empty() || code.starts_with('#')
}

/// Whether a line belongs to the block before it.
fn continues(line: &str) -> bool {
    let word = line.split(|c: char| !c.is_alphanumeric()).next();
    line.starts_with([' ', '\t', ')', ']', '}'])
        || matches!(word, Some("else" | "elif" | "except" | "finally"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_needs_no_more() {
        for text in [
            "x = 1",
            "f(1)[2]",
            "'#'",
            "# a: b",
            "d = {1: 2}",
            "x = 'it''s'",
            "a[1:]",
            "",
        ] {
            assert!(!needs_more(text), "{text:?}");
        }
    }

    #[test]
    fn what_is_open_needs_more() {
        for text in [
            "f(",
            "x = [1,\n2",
            "'''a\n",
            "\"\"\"a'''",
            "x = \\",
            "'a\\",
            "f('(',",
        ] {
            assert!(needs_more(text), "{text:?}");
        }
        // Unbalanced the other way, and a string that nothing ends: errors for the parser.
        assert!(!needs_more("f)") && !needs_more("x = 'a"));
    }

    #[test]
    fn an_empty_line_ends_a_block() {
        assert!(needs_more("def f():") && needs_more("def f():\n    return 1"));
        assert!(needs_more("@cache") && needs_more("if x:  # why"));
        assert!(needs_more("def f(a,\n      b):"));
        assert!(!needs_more("def f():\n    return 1\n\n"));
        assert!(needs_more("def f():\n    '''a\n\n"), "the string is open");
    }

    #[test]
    fn a_block_is_indented() {
        assert_eq!(indentation("def f():"), "    ");
        assert_eq!(indentation("def f():\n    if x:"), "        ");
        assert_eq!(indentation("def f():\n    x = 1"), "    ");
        assert_eq!(indentation("@cache"), "");
    }

    #[test]
    fn a_script_is_split_into_statements() {
        let script = "import math\n\n# why\n@cache\ndef f(x):\n    y = x\n\n    return y\nif f(1):\n    a = 1\n\
            # or\nelse:\n    a = 2\nf(\n  a,\n)\n%ls\n\n";
        let found = split(script);
        let found: Vec<_> = found
            .iter()
            .map(|(line, text)| (*line, text.as_str()))
            .collect();
        assert_eq!(
            found,
            [
                (0, "import math"),
                (3, "@cache\ndef f(x):\n    y = x\n\n    return y"),
                (8, "if f(1):\n    a = 1\n# or\nelse:\n    a = 2"),
                (13, "f(\n  a,\n)"),
                (16, "%ls"),
            ]
        );
    }
}
