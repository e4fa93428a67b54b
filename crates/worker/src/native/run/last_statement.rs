//! Finds the last statement of a program without parsing it: a parse tree in Python objects takes longer
//! than the compilation itself.
//!
//! It knows Python's tokens (Python Language Reference, chapter 2), but not its grammar. The compiler judges
//! what it finds: a program is executed in two parts only if both compile alone. Where the two could differ
//! from the whole, the answer is `None`, and the program is parsed.

/// The last statement at the top level of a program.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LastStatement {
    /// It is no expression, or the program is empty. The program has no value.
    NoValue,
    /// It may be an expression.
    Candidate {
        /// Where it begins, at the start of a line.
        start: usize,
        /// Whether it is the only statement.
        is_only: bool,
    },
}

/// The deepest nesting of f-strings. CPython allows 150; programs use 2.
const MOST_NESTED: usize = 8;

/// Keywords with which a statement begins that is no expression.
const KEYWORDS: &str = "assert async break class continue def del elif else except finally for from global if \
                        import nonlocal pass raise return try while with @";

/// The last statement of a program; `None` if that takes a parser to tell.
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
        // An expression that indented lines follow is none.
        LineKind::Expression | LineKind::Several => None,
    }
}

/// What comes next in a program.
enum Next {
    Line(Line),
    End,
}

/// A logical line.
struct Line {
    start: usize,
    /// Whether it is not indented.
    is_outermost: bool,
    kind: LineKind,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum LineKind {
    /// It has no token that only other statements have.
    Expression,
    /// A statement that is no expression.
    Statement,
    /// It has semicolons.
    Several,
}

struct Lexer<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// What ends a stretch of code.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Until {
    /// The end of the line.
    LineEnd,
    /// The brace that ends a replacement field, or the colon before its format.
    FieldEnd,
}

impl<'a> Lexer<'a> {
    /// Takes one logical line that has a token.
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

    /// Takes code up to its end.
    fn code(&mut self, until: Until, nested: usize) -> Option<LineKind> {
        let (mut depth, mut kind, mut has_lambda) = (0_usize, LineKind::Expression, false);
        while let Some(byte) = self.peek() {
            let next = self.bytes.get(self.at + 1).copied();
            // A token that makes a statement of what would otherwise be an expression.
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
                // Comparisons and shifts, whose `=` assigns nothing by itself.
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
                // What follows `lambda` has colons and may have `=`: its parameters.
                Some(found) if depth == 0 && !has_lambda && kind == LineKind::Expression => {
                    kind = found;
                }
                _ => {}
            }
        }
        (depth == 0 && until == Until::LineEnd).then_some(kind)
    }

    /// Takes a string literal, from its quote on.
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
                // A brace after it begins a field all the same.
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

    /// Takes a replacement field, from its brace on.
    fn field(&mut self, nested: usize) -> Option<()> {
        if nested > MOST_NESTED {
            return None;
        }
        self.at += 1;
        self.code(Until::FieldEnd, nested)?;
        // The format, which may have fields of its own.
        while self.peek()? != b'}' {
            match self.peek()? {
                b'{' => self.field(nested + 1)?,
                // A string that ends here, or what depends on the version.
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

    /// The word at a place, or the character.
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

    /// Skips to the end of the line, which stays.
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

/// Whether a word before a quote belongs to the string.
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
    fn programs_without_a_value() {
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
    fn programs_that_end_with_what_may_be_an_expression() {
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
    fn strings_with_fields() {
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
    fn what_takes_a_parser() {
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
