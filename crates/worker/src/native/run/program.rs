//! A program, compiled for its run.

use std::ffi::CString;

use super::Offer;
use super::last_statement::{LastStatement, find};
use super::request::Last;
use crate::native::python::{
    Mode, Object, Raised, clear_exception, compile, evaluate, handle_signals,
};

/// A program that is ready to be executed, and the module that it is executed in.
pub struct Program {
    main: Object,
    namespace: Object,
    /// How many names the module has by itself.
    own_names: isize,
    /// The modules of the interpreter, and how many there are by themselves.
    modules: Object,
    own_modules: isize,
    /// All statements but a last expression.
    body: Option<Object>,
    last: Option<Object>,
    filename: Object,
}

impl Program {
    /// Compiles a program and prepares its `__main__`; `None` if that is left to Python.
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
        let place = |codes| Self::place(offer, filename, argv, text, codes);
        let prepared = codes.and_then(|codes| codes.map(place).transpose());
        prepared.unwrap_or_else(|Raised| {
            clear_exception();
            None
        })
    }

    /// Makes the module, and tells `sys` and `linecache` of the program.
    fn place(
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
        // A signal that came with the last instruction belongs to the program too.
        handle_signals()?;
        Ok(value)
    }

    /// Whether it may have variables.
    pub fn has_variables(&self) -> bool {
        self.namespace.size() != self.own_names
    }

    /// Whether it has imported modules, which may be its own. It need not have a name for them.
    pub fn has_imported(&self) -> bool {
        self.modules.size() != self.own_modules
    }

    /// Leaves its variables to what else refers to them, such as `sys.modules`. An empty module takes their place.
    pub fn release(&mut self) -> Result<(), Raised> {
        (self.main, self.namespace) = Object::module(c"__main__")?;
        Ok(())
    }

    /// Its `__main__`.
    pub fn into_main(self) -> Object {
        self.main
    }

    /// Removes its lines.
    pub fn forget(&self, offer: &Offer) -> Result<(), Raised> {
        if offer.lines.is_dict() {
            offer.lines.remove_item(&self.filename)?;
        }
        Ok(())
    }
}

/// Whether this reads the source as Python does. Exotic ends of lines and encodings are left to Python, and
/// so is what one statement changes for the compilation of the next.
fn is_ordinary(text: &str) -> bool {
    let mut start = text.splitn(3, '\n').take(2);
    let is_control = |byte: u8| byte < b' ' && byte != b'\n' && byte != b'\t';
    !(text.bytes().any(is_control)
        || text.starts_with('\u{feff}')
        || start.any(|line| line.contains("coding"))
        || text.contains("__future__"))
}

/// The source of all but a last expression, and the source of that, each on its own lines.
pub struct Parts {
    body: Option<CString>,
    last: Option<CString>,
}

impl Parts {
    /// Divides a program; `None` if that takes a parser.
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

    /// Whether the program ends with what may be an expression.
    pub const fn has_last(&self) -> bool {
        self.last.is_some()
    }

    /// Compiles both; `None` if one does not compile alone, or with a warning. `filters` are those of warnings, and by
    /// `as_error` every warning is an error.
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
        // A warning is shown once: by Python, which compiles the program then.
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

/// The entry of `linecache` for a program (`line_entry` of the guest's `cell.py`).
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
