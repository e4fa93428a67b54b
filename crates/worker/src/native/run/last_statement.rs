//! Finds the last statement of a program without parsing it, because a syntax tree of Python objects takes longer than
//! the compilation itself.
//!
//! The lexer knows Python's tokens (Python Language Reference, chapter 2) but not its grammar. The compiler has the
//! final word: a program is executed in two parts only if both compile on their own. Where the two parts could behave
//! differently from the whole, the result is `None`, and the program is parsed.

/// The last statement at the top level of a program.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LastStatement {
    /// The last statement is not an expression, or the program is empty. The program has no value.
    NoValue,
    /// The last statement may be an expression.
    Candidate {
        /// The byte offset of its start, which is the start of a line.
        start: usize,
        /// Whether it is the only statement.
        is_only: bool,
    },
}

/// The maximum nesting depth of f-strings. CPython allows 150; programs use 2.
const MAX_NESTED: usize = 8;

/// Keywords that begin a statement other than an expression.
const KEYWORDS: &str = "assert async break class continue def del elif else except finally for from global if \
                        import nonlocal pass raise return try while with @";

/// Finds the last statement of a program. Returns `None` if that needs a parser.
pub fn find(source: &str) -> Option<LastStatement> {
    let mut lexer = Lexer {
        bytes: source.as_bytes(),
        at: 0,
    };
    let (mut last, mut count) = (None, 0_usize);
    while let Next::Line(line) = lexer.logical_line()? {
        count += 1;
        if line.is_outermost {
            last = Some((line, count));
        }
    }
    let Some((line, number)) = last else {
        return (count == 0).then_some(LastStatement::NoValue);
    };
    match line.kind {
        LineKind::Statement => Some(LastStatement::NoValue),
        LineKind::Expression if number == count => Some(LastStatement::Candidate {
            start: line.start,
            is_only: count == 1,
        }),
        // An expression that is followed by indented lines is not an expression statement.
        LineKind::Expression | LineKind::Several => None,
    }
}

/// The next element of a program.
enum Next {
    Line(Line),
    End,
}

/// A logical line.
struct Line {
    start: usize,
    /// Whether the line is not indented.
    is_outermost: bool,
    kind: LineKind,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum LineKind {
    /// No token rules out an expression.
    Expression,
    /// A statement other than an expression.
    Statement,
    /// The line has a semicolon, and may have several statements.
    Several,
}

struct Lexer<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// The end of a stretch of code.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Until {
    /// The end of the line.
    LineEnd,
    /// The brace that ends a replacement field, or the colon before its format specifier.
    FieldEnd,
}

impl<'a> Lexer<'a> {
    /// Consumes the next logical line that has a token.
    fn logical_line(&mut self) -> Option<Next> {
        loop {
            let begin = self.at;
            self.skip_while(|byte| matches!(byte, b' ' | b'\t'));
            match self.peek() {
                None => return Some(Next::End),
                Some(b'\n') => self.at += 1,
                Some(b'#') => self.skip_comment(),
                Some(b'\\') => return None,
                Some(_) => {
                    let start = self.at;
                    let kind = self.code(Until::LineEnd, 0)?;
                    let is_keyword = is_keyword(self.first_word(start));
                    return Some(Next::Line(Line {
                        start,
                        is_outermost: start == begin,
                        kind: match kind {
                            LineKind::Expression if is_keyword => LineKind::Statement,
                            other => other,
                        },
                    }));
                }
            }
        }
    }

    /// Consumes code up to its end.
    fn code(&mut self, until: Until, nested: usize) -> Option<LineKind> {
        let (mut depth, mut kind, mut has_lambda) = (0_usize, LineKind::Expression, false);
        while let Some(byte) = self.peek() {
            let next = self.bytes.get(self.at + 1).copied();
            // The kind that this token implies, if it rules out a plain expression.
            let mut marks = None;
            match byte {
                b'\n' if until == Until::LineEnd && depth == 0 => {
                    self.at += 1;
                    return Some(kind);
                }
                b'#' => {
                    self.skip_comment();
                    continue;
                }
                b'\\' if next == Some(b'\n') => self.at += 1,
                b'\\' => return None,
                b'(' | b'[' | b'{' => depth += 1,
                b'}' if until == Until::FieldEnd && depth == 0 => return Some(kind),
                b')' | b']' | b'}' => depth = depth.checked_sub(1)?,
                b'"' | b'\'' => {
                    self.string(b"", nested)?;
                    continue;
                }
                // Comparisons and shifts, in which `=` is not an assignment.
                b'=' | b'!' | b'<' | b'>' | b':' if next == Some(b'=') => self.at += 1,
                b'<' | b'>' if next == Some(byte) => self.at += 1,
                b':' if until == Until::FieldEnd && depth == 0 => return Some(kind),
                b'=' | b':' => marks = Some(LineKind::Statement),
                b';' => marks = Some(LineKind::Several),
                b'_' | b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | 0x80.. => {
                    let word = self.word();
                    if matches!(self.peek(), Some(b'"' | b'\'')) && is_prefix(word) {
                        let word = word.to_ascii_lowercase();
                        self.string(&word, nested)?;
                    }
                    has_lambda |= depth == 0 && word == b"lambda";
                    continue;
                }
                _ => {}
            }
            self.at += 1;
            match marks {
                Some(LineKind::Several) if depth == 0 => kind = LineKind::Several,
                // The parameters of `lambda` may contain colons and `=`.
                Some(found) if depth == 0 && !has_lambda && kind == LineKind::Expression => {
                    kind = found;
                }
                _ => {}
            }
        }
        (depth == 0 && until == Until::LineEnd).then_some(kind)
    }

    /// Consumes a string literal, starting at its quote.
    fn string(&mut self, prefix: &[u8], nested: usize) -> Option<()> {
        let quote = self.peek()?;
        let rest = &self.bytes[self.at..];
        let is_long = rest.starts_with(&[quote; 3]);
        self.at += if is_long { 3 } else { 1 };
        let has_fields = prefix.contains(&b'f') || prefix.contains(&b't');
        let is_raw = prefix.contains(&b'r');
        loop {
            let rest = self.bytes.get(self.at..)?;
            match *rest.first()? {
                b'\\' if has_fields && !is_raw && rest.starts_with(b"\\N{") => {
                    self.skip_while(|byte| byte != b'}');
                }
                // A brace begins a field even after a backslash.
                b'\\' if has_fields && matches!(rest.get(1), Some(b'{' | b'}')) => self.at += 1,
                b'\\' => self.at += 2,
                b'\n' if !is_long => return None,
                byte if byte == quote => {
                    if !is_long {
                        self.at += 1;
                        return Some(());
                    }
                    if rest.starts_with(&[quote; 3]) {
                        self.at += 3;
                        return Some(());
                    }
                    self.at += 1;
                }
                b'{' if has_fields && rest.starts_with(b"{{") => self.at += 2,
                b'{' if has_fields => self.field(nested + 1)?,
                _ => self.at += 1,
            }
        }
    }

    /// Consumes a replacement field, starting at its brace.
    fn field(&mut self, nested: usize) -> Option<()> {
        if nested > MAX_NESTED {
            return None;
        }
        self.at += 1;
        self.code(Until::FieldEnd, nested)?;
        // The format specifier, which may contain nested fields.
        while self.peek()? != b'}' {
            match self.peek()? {
                b'{' => self.field(nested + 1)?,
                // The string ends here, or the meaning depends on the Python version.
                b'"' | b'\'' | b'\n' | b'\\' => return None,
                _ => self.at += 1,
            }
        }
        self.at += 1;
        Some(())
    }

    fn word(&mut self) -> &'a [u8] {
        let start = self.at;
        self.skip_while(is_of_word);
        &self.bytes[start..self.at]
    }

    /// Returns the word at an offset, or the single character there.
    fn first_word(&self, start: usize) -> &[u8] {
        let rest = &self.bytes[start..];
        let length = rest.iter().take_while(|byte| is_of_word(**byte)).count();
        &rest[..length.max(1).min(rest.len())]
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn skip_while(&mut self, is_skipped: impl Fn(u8) -> bool) {
        while self.peek().is_some_and(&is_skipped) {
            self.at += 1;
        }
    }

    /// Skips to the end of the line, without the line feed.
    fn skip_comment(&mut self) {
        self.skip_while(|byte| byte != b'\n');
    }
}

fn is_of_word(byte: u8) -> bool {
    byte == b'_' || byte.is_ascii_alphanumeric() || byte >= 0x80
}

fn is_keyword(word: &[u8]) -> bool {
    KEYWORDS
        .split(' ')
        .any(|keyword| keyword.as_bytes() == word)
}

/// Returns whether a word before a quote is a string prefix.
fn is_prefix(word: &[u8]) -> bool {
    const PREFIXES: [&[u8]; 11] = [
        b"r", b"u", b"b", b"br", b"rb", b"f", b"fr", b"rf", b"t", b"tr", b"rt",
    ];
    PREFIXES
        .iter()
        .any(|prefix| prefix.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn none(source: &str) {
        assert_eq!(find(source), Some(LastStatement::NoValue), "{source:?}");
    }

    fn expression(before: &str, last: &str) {
        let found = Some(LastStatement::Candidate {
            start: before.len(),
            is_only: before
                .lines()
                .all(|line| line.trim().is_empty() || line.starts_with('#')),
        });
        let source = format!("{before}{last}");
        assert_eq!(find(&source), found, "{source:?}");
    }

    fn unsure(source: &str) {
        assert_eq!(find(source), None, "{source:?}");
    }

    #[test]
    fn program_without_trailing_expression_has_no_value() {
        none("");
        none("\n# nothing\n   \n");
        none("pass");
        none("x = f(1)\n");
        none("x += 1");
        none("x >>= 1");
        none("x: int");
        none("x: int = 1 # five\n");
        none("x.y[0] = 5");
        none("f = lambda x: x");
        none("import os");
        none("def f():\n    return 1\n");
        none("@d\nclass C: pass\n");
        none("if x:\n    1\nelse:\n    2\n\n# end");
        none("match x:\n    case 1:\n        y\n");
        none("type X = int");
        none("x = '''\nprint(1)\n'''");
        none("x = [\n1,\n]");
        none("x = 1 + \\\n1");
        none("for x in y: f(x)");
        none("1\nx = 2");
    }

    #[test]
    fn trailing_expression_is_a_candidate() {
        expression("", "1");
        expression("", "print('a')\n\n# end\n");
        expression("\n# first\n", "1 == 2");
        expression("x = 1\n", "x != 2");
        expression("x = 1\n", "x <= 2 >= 3");
        expression("x = 1\n", "x << 2 >> 3\n");
        expression("x = 1\n", "f(x, y=2, z={1: 2}, w=a[1:2])");
        expression("def f():\n    return 1\n", "f(\n    1,\n)\n");
        expression("import os\n", "(\n1\n)");
        expression("a = 1\n", "\"\"\"\nx = 1\n\"\"\"");
        expression("a = '\\''\n", "'b' \\\n  'c'");
        expression("a = r'\\'a'\n", "a");
        expression("a = b'\"'\n", "lambda x=1: x");
        expression("a = 'é' # é\n", "é");
        expression("a = 1\n", "await f()");
        expression("a = 1\n", "match(x)");
        expression("a = 0x1f\n", "a if a else{1: 2}");
        expression("x = 1 if'a'in'b'else 2\n", "x");
    }

    #[test]
    fn fields_of_f_strings_are_tokenized() {
        expression("x = f'{y!r:>{width}}'\n", "f'{x}'");
        expression("x = f'{{'\n", "f'}}{x}'");
        expression("x = f'{d[\"}\"]}'\n", "x");
        expression("x = f'{d['}']}'\n", "x");
        expression("x = f'''{\n  d[1:2]  # }\n}'''\n", "x");
        expression("x = f'\\N{DASH}{y}'\n", "x");
        expression("x = rf'\\{y}'\n", "x");
        expression("x = f'{y:%H}'\n", "f\"{x}\"");
        expression("x = f'{f'{f'{1}'}'}'\n", "x");
        expression("x = F'{(lambda: 1)()}'\n", "x");
        none("x = f'{y}; {z}'");
        none("x = t'{y=}'");
        unsure(&format!("{}1{}", "f'{".repeat(20), "}'".repeat(20)));
        unsure("f'{x:'}'");
    }

    #[test]
    fn ambiguous_program_needs_a_parser() {
        unsure("1; 2");
        unsure("plot();");
        unsure("import os; os.name");
        unsure("x = 1; x");
        unsure("  1");
        unsure("1\n  2");
        unsure("(");
        unsure("(\n1\n");
        unsure(")");
        unsure("'a");
        unsure("'a\n'");
        unsure("'''a");
        unsure("x \\ y");
        unsure("\\\n1");
        unsure("f'{");
        unsure("f'{x");
    }
}
