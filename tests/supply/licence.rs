//! Licence expressions (SPDX 2.3, annex D): whether one can be met with the licences that are allowed.

/// Whether an expression can be met. None at all cannot.
pub fn is_allowed(expression: &str, allowed: &[&str]) -> bool {
    // Before SPDX, cargo had a slash for "or".
    let spaced = expression
        .replace('/', " OR ")
        .replace('(', " ( ")
        .replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut parser = Parser {
        rest: &words,
        allowed,
    };
    let met = parser.either();
    met && parser.rest.is_empty()
}

struct Parser<'a> {
    rest: &'a [&'a str],
    allowed: &'a [&'a str],
}

impl<'a> Parser<'a> {
    fn either(&mut self) -> bool {
        let mut met = self.both();
        while self.take("OR") {
            met |= self.both();
        }
        met
    }

    fn both(&mut self) -> bool {
        let mut met = self.one();
        while self.take("AND") {
            met &= self.one();
        }
        met
    }

    fn one(&mut self) -> bool {
        if self.take("(") {
            let met = self.either();
            return self.take(")") && met;
        }
        let Some(name) = self.next() else {
            return false;
        };
        if self.take("WITH") {
            let exception = self.next().unwrap_or_default();
            return self
                .allowed
                .contains(&format!("{name} WITH {exception}").as_str());
        }
        self.allowed.contains(&name)
    }

    fn take(&mut self, word: &str) -> bool {
        let found = self.rest.first() == Some(&word);
        if found {
            self.next();
        }
        found
    }

    fn next(&mut self) -> Option<&'a str> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(first)
    }
}

#[test]
fn expressions_are_met_or_not() {
    let allowed = ["MIT", "Apache-2.0 WITH LLVM-exception", "BSD-3-Clause"];
    for met in [
        "MIT",
        "GPL-3.0/MIT",
        "MIT OR GPL-3.0",
        "MIT AND BSD-3-Clause",
        "(GPL-3.0 OR MIT) AND BSD-3-Clause",
        "Apache-2.0 WITH LLVM-exception OR GPL-3.0",
        "GPL-3.0 AND GPL-2.0 OR MIT",
    ] {
        assert!(is_allowed(met, &allowed), "{met}");
    }
    for refused in [
        "",
        "GPL-3.0",
        "MIT AND GPL-3.0",
        "Apache-2.0",
        "MIT WITH LLVM-exception",
        "(MIT",
        "MIT BSD-3-Clause",
        "MIT AND (GPL-3.0 OR GPL-2.0)",
    ] {
        assert!(!is_allowed(refused, &allowed), "{refused}");
    }
}
