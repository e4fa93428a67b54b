//! Compiles and executes the program of a run.

use std::ffi::CString;

use super::Offer;
use super::last_statement::{LastStatement, find};
use super::request::Last;
use crate::native::python::{
    Mode, Object, Raised, clear_exception, compile, evaluate, handle_signals,
};

/// A compiled program, and the module in which it is executed.
pub struct Program {
    main: Object,
    namespace: Object,
    /// The number of names that the module has initially.
    own_names: isize,
    /// The interpreter's `sys.modules`, and its initial length.
    modules: Object,
    own_modules: isize,
    /// The code of all statements except a trailing expression.
    body: Option<Object>,
    last: Option<Object>,
    filename: Object,
}

impl Program {
    /// Compiles a program and prepares its `__main__`. Returns `None` if that is left to Python.
    pub fn prepare(
        offer: &Offer,
        filename: &str,
        argv: &[&str],
        source: &[u8],
        wanted: Last,
    ) -> Option<Self> {
        let text = std::str::from_utf8(source).ok()?;
        let parts = Parts::of(text, wanted)?;
        let codes = parts.compile(filename, &offer.filters, &offer.as_error);
        let install = |codes| Self::install(offer, filename, argv, text, codes);
        let prepared = codes.and_then(|codes| codes.map(install).transpose());
        prepared.unwrap_or_else(|Raised| {
            clear_exception();
            None
        })
    }

    /// Creates the module, and registers the program in `sys` and `linecache`.
    fn install(
        offer: &Offer,
        filename: &str,
        argv: &[&str],
        text: &str,
        [body, last]: [Option<Object>; 2],
    ) -> Result<Self, Raised> {
        let (main, namespace) = Object::module(c"__main__")?;
        namespace.set_named(c"__builtins__", &offer.builtins)?;
        if !offer.annotations.is_none() {
            namespace.set_named(c"__annotations__", &offer.annotations)?;
        }
        let modules = Object::system(c"modules").ok_or(Raised)?;
        modules.set_named(c"__main__", &main)?;
        let argv: Vec<Object> = argv
            .iter()
            .map(|text| Object::text(text))
            .collect::<Result<_, _>>()?;
        if Object::system(c"orig_argv").is_some() {
            let executable = Object::system(c"executable").unwrap_or_else(Object::none);
            let all = std::iter::once(executable).chain(argv.iter().cloned());
            Object::set_system(c"orig_argv", &Object::list(all.collect())?)?;
        }
        Object::set_system(c"argv", &Object::list(argv)?)?;
        let filename = Object::text(filename)?;
        if offer.lines.is_dict() {
            offer
                .lines
                .set_item(&filename, &lines_of(text, &filename)?)?;
        }
        Ok(Self {
            main,
            own_names: namespace.size(),
            own_modules: modules.size(),
            modules,
            namespace,
            body,
            last,
            filename,
        })
    }

    /// Executes the program. Returns the value of its last statement, if that is an expression.
    pub fn execute(&self) -> Result<Object, Raised> {
        if let Some(body) = &self.body {
            evaluate(body, &self.namespace)?;
        }
        let value = match &self.last {
            Some(last) => evaluate(last, &self.namespace)?,
            None => Object::none(),
        };
        // A signal that arrived during the last instruction belongs to the program too.
        handle_signals()?;
        Ok(value)
    }

    /// Returns whether the program may have variables.
    pub fn has_variables(&self) -> bool {
        self.namespace.size() != self.own_names
    }

    /// Returns whether the program has imported modules, which may be its own. It need not hold a name for them.
    pub fn has_imported(&self) -> bool {
        self.modules.size() != self.own_modules
    }

    /// Drops the program's `__main__`, so that only other references such as `sys.modules` keep its variables alive. An
    /// empty module replaces it.
    pub fn release(&mut self) -> Result<(), Raised> {
        (self.main, self.namespace) = Object::module(c"__main__")?;
        Ok(())
    }

    /// Returns the program's `__main__`.
    pub fn into_main(self) -> Object {
        self.main
    }

    /// Removes the program's lines from `linecache`.
    pub fn forget(&self, offer: &Offer) -> Result<(), Raised> {
        if offer.lines.is_dict() {
            offer.lines.remove_item(&self.filename)?;
        }
        Ok(())
    }
}

/// Returns whether this module reads the source as Python does. Unusual line endings and encodings are left to Python,
/// and so are statements that affect the compilation of later ones.
fn is_ordinary(text: &str) -> bool {
    let mut start = text.splitn(3, '\n').take(2);
    let is_control = |byte: u8| byte < b' ' && byte != b'\n' && byte != b'\t';
    !(text.bytes().any(is_control)
        || text.starts_with('\u{feff}')
        || start.any(|line| line.contains("coding"))
        || text.contains("__future__"))
}

/// The source of everything but a trailing expression, and the source of that expression, each at its original line
/// numbers.
pub struct Parts {
    body: Option<CString>,
    last: Option<CString>,
}

impl Parts {
    /// Splits a program. Returns `None` if that needs a parser.
    pub fn of(text: &str, wanted: Last) -> Option<Self> {
        let whole = |text| {
            let body = Some(CString::new(text).ok()?);
            Some(Self { body, last: None })
        };
        if !is_ordinary(text) {
            return None;
        }
        let (start, is_only) = match wanted {
            Last::Nothing => return whole(text),
            Last::Expression => match find(text)? {
                LastStatement::NoValue => return whole(text),
                LastStatement::Candidate { start, is_only } => (start, is_only),
            },
        };
        let (body, last) = text.split_at_checked(start)?;
        let lines = body.bytes().filter(|byte| *byte == b'\n').count();
        let mut padded = vec![b'\n'; lines];
        padded.extend_from_slice(last.as_bytes());
        Some(Self {
            body: (!is_only).then(|| CString::new(body).ok()).flatten(),
            last: Some(CString::new(padded).ok()?),
        })
    }

    /// Returns whether the program ends with a possible expression.
    pub const fn has_last(&self) -> bool {
        self.last.is_some()
    }

    /// Compiles both parts. Returns `None` if a part does not compile on its own, or compiles with a warning. `filters`
    /// is the list of warning filters, and `as_error` a filter that turns every warning into an error.
    pub fn compile(
        self,
        filename: &str,
        filters: &Object,
        as_error: &Object,
    ) -> Result<Option<[Option<Object>; 2]>, Raised> {
        let Ok(name) = CString::new(filename) else {
            return Ok(None);
        };
        let compiled = |part: Option<CString>, mode| {
            part.map(|source| compile(&source, &name, mode)).transpose()
        };
        // A warning must be shown exactly once: by Python, which compiles the program again.
        filters.insert_first(as_error)?;
        let last = compiled(self.last, Mode::Expression);
        let both = last.and_then(|last| Ok([compiled(self.body, Mode::Program)?, last]));
        if both.is_err() {
            clear_exception();
        }
        filters.remove_first()?;
        Ok(both.ok())
    }
}

/// Returns the `linecache` entry of a program (`line_entry` of the guest's `cell.py`).
fn lines_of(text: &str, filename: &Object) -> Result<Object, Raised> {
    let line = |line: &str| match line.strip_suffix('\n') {
        Some(_) => Object::text(line),
        None => Object::text(&format!("{line}\n")),
    };
    let lines = text
        .split_inclusive('\n')
        .map(line)
        .collect::<Result<_, _>>()?;
    let entry = vec![
        Object::count(text.chars().count())?,
        Object::none(),
        Object::list(lines)?,
        filename.clone(),
    ];
    Object::tuple(entry)
}
