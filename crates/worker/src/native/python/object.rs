//! Objects of the interpreter, with their references counted.
//!
//! All of it runs in a function of the module, so with the interpreter's lock held: the SAFETY comments say
//! what else is needed. A guest's object may run any code when it is used, and none can make these calls
//! unsafe.

use std::ffi::{CStr, c_int};
use std::ptr::{self, NonNull};

use pyo3_ffi::{
    Py_CompileString, Py_DecRef, Py_IncRef, Py_None, Py_TYPE, Py_eval_input, Py_file_input,
    Py_ssize_t, PyBool_FromLong, PyBool_Type, PyBytes_AsStringAndSize, PyBytes_FromStringAndSize,
    PyDict_DelItem, PyDict_GetItemString, PyDict_SetItem, PyDict_SetItemString, PyDict_Size,
    PyDict_Type, PyErr_CheckSignals, PyErr_Clear, PyErr_Fetch, PyErr_NormalizeException,
    PyEval_EvalCode, PyException_SetTraceback, PyFloat_AsDouble, PyFloat_Type, PyList_AsTuple,
    PyList_Insert, PyList_New, PyList_SetItem, PyLong_AsLongLongAndOverflow, PyLong_FromSize_t,
    PyLong_Type, PyModule_GetDict, PyModule_New, PyObject, PyObject_CallFunctionObjArgs,
    PyObject_GetAttrString, PyObject_IsTrue, PySequence_DelItem, PySys_GetObject, PySys_SetObject,
    PyTuple_GetItem, PyTypeObject, PyUnicode_AsUTF8String, PyUnicode_FromStringAndSize,
    PyUnicode_GetLength, PyUnicode_Type,
};
use serde::Serialize;

/// A counted reference.
#[derive(Debug, Eq, PartialEq)]
pub struct Object(NonNull<PyObject>);

/// The interpreter has an exception set.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Raised;

/// What source is compiled as.
#[derive(Clone, Copy, Debug)]
pub enum Mode {
    /// Statements.
    Program,
    /// One expression.
    Expression,
}

/// A value that JSON represents as it is.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Plain {
    /// `None`, which is `null`.
    None,
    /// `True` or `False`.
    Bool(bool),
    /// An integer of 64 bits.
    Int(i64),
    /// A finite number.
    Float(f64),
    /// A text of ASCII.
    Text(String),
}

impl Drop for Object {
    fn drop(&mut self) {
        // SAFETY: this value has one reference, and gives it back once.
        unsafe { Py_DecRef(self.0.as_ptr()) }
    }
}

impl Clone for Object {
    fn clone(&self) -> Self {
        Self::borrowed(self.0)
    }
}

impl Object {
    /// Takes over a new reference, or reports the exception that a null pointer stands for.
    pub(super) fn owned(new: *mut PyObject) -> Result<Self, Raised> {
        NonNull::new(new).map(Self).ok_or(Raised)
    }

    /// Makes a reference to an object that another reference keeps alive.
    pub(super) fn borrowed(object: NonNull<PyObject>) -> Self {
        // SAFETY: the object is alive, by another reference.
        unsafe { Py_IncRef(object.as_ptr()) };
        Self(object)
    }

    /// Gives up the reference, for a call that takes it over.
    pub(super) fn into_raw(self) -> *mut PyObject {
        std::mem::ManuallyDrop::new(self).0.as_ptr()
    }

    pub(super) fn as_ptr(&self) -> *mut PyObject {
        self.0.as_ptr()
    }

    /// `None`.
    pub fn none() -> Self {
        // SAFETY: the object lives as long as the interpreter.
        let none = unsafe { Py_None() };
        // The interpreter has it before it loads a module.
        NonNull::new(none).map_or_else(|| std::process::abort(), Self::borrowed)
    }

    /// Whether it is `None`.
    pub fn is_none(&self) -> bool {
        *self == Self::none()
    }

    /// A `str`.
    pub fn text(text: &str) -> Result<Self, Raised> {
        // SAFETY: pointer and length are of one live string, which is copied.
        Self::owned(unsafe {
            PyUnicode_FromStringAndSize(text.as_ptr().cast(), length(text.len()))
        })
    }

    /// A `bytes`.
    pub fn bytes(bytes: &[u8]) -> Result<Self, Raised> {
        // SAFETY: pointer and length are of one live slice, which is copied.
        Self::owned(unsafe {
            PyBytes_FromStringAndSize(bytes.as_ptr().cast(), length(bytes.len()))
        })
    }

    /// An `int`.
    pub fn count(count: usize) -> Result<Self, Raised> {
        // SAFETY: an integer only.
        Self::owned(unsafe { PyLong_FromSize_t(count) })
    }

    /// A `bool`.
    pub fn truth(truth: bool) -> Result<Self, Raised> {
        // SAFETY: an integer only.
        Self::owned(unsafe { PyBool_FromLong(truth.into()) })
    }

    /// A `list`.
    pub fn list(items: Vec<Self>) -> Result<Self, Raised> {
        // SAFETY: an integer only.
        let list = Self::owned(unsafe { PyList_New(length(items.len())) })?;
        for (index, item) in (0..).zip(items) {
            // SAFETY: the list is new and has as many places, of which each is filled once. The call takes
            // over the reference.
            succeeded(unsafe { PyList_SetItem(list.as_ptr(), index, item.into_raw()) })?;
        }
        Ok(list)
    }

    /// A `tuple`.
    pub fn tuple(items: Vec<Self>) -> Result<Self, Raised> {
        let list = Self::list(items)?;
        // SAFETY: the object is a `list`.
        Self::owned(unsafe { PyList_AsTuple(list.as_ptr()) })
    }

    /// A new module, and its namespace.
    pub fn module(name: &CStr) -> Result<(Self, Self), Raised> {
        // SAFETY: the name is a live string.
        let module = Self::owned(unsafe { PyModule_New(name.as_ptr()) })?;
        // SAFETY: the object is a module, which keeps its namespace alive.
        let namespace = NonNull::new(unsafe { PyModule_GetDict(module.as_ptr()) }).ok_or(Raised)?;
        Ok((module, Self::borrowed(namespace)))
    }

    /// An attribute of `sys`, if there is one.
    pub fn system(name: &CStr) -> Option<Self> {
        // SAFETY: the name is a live string. The module keeps the object alive until it is counted here.
        NonNull::new(unsafe { PySys_GetObject(name.as_ptr()) }).map(Self::borrowed)
    }

    /// Sets an attribute of `sys`.
    pub fn set_system(name: &CStr, value: &Self) -> Result<(), Raised> {
        // SAFETY: the name is a live string.
        succeeded(unsafe { PySys_SetObject(name.as_ptr(), value.as_ptr()) })
    }

    /// The exception that is set, with its traceback. It is not set any more.
    pub fn exception() -> Self {
        let (mut kind, mut value, mut traceback) =
            (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        // SAFETY: the pointers are to live locals, which the calls fill with references of their own or null.
        let [kind, value, traceback] = unsafe {
            PyErr_Fetch(&raw mut kind, &raw mut value, &raw mut traceback);
            PyErr_NormalizeException(&raw mut kind, &raw mut value, &raw mut traceback);
            [kind, value, traceback].map(|new| NonNull::new(new).map(Self))
        };
        if let (Some(value), Some(traceback)) = (&value, &traceback) {
            // SAFETY: a normalized exception is an object of a class of exceptions.
            unsafe { PyException_SetTraceback(value.as_ptr(), traceback.as_ptr()) };
        }
        drop(kind);
        value.unwrap_or_else(Self::none)
    }

    /// The items of a tuple.
    pub fn items<const N: usize>(&self) -> Result<[Self; N], Raised> {
        let mut items = Vec::with_capacity(N);
        for index in 0..length(N) {
            // SAFETY: the call checks type and index. The tuple keeps the item alive until it is counted.
            let item = unsafe { PyTuple_GetItem(self.as_ptr(), index) };
            items.push(Self::borrowed(NonNull::new(item).ok_or(Raised)?));
        }
        items.try_into().map_err(|_| Raised)
    }

    /// The contents of a `bytes`.
    pub fn as_bytes(&self) -> Result<&[u8], Raised> {
        let (mut start, mut count) = (ptr::null_mut(), 0);
        // SAFETY: the call checks the type. The contents never change, and live as long as the object, which
        // the result borrows.
        unsafe {
            succeeded(PyBytes_AsStringAndSize(
                self.as_ptr(),
                &raw mut start,
                &raw mut count,
            ))?;
            let count = usize::try_from(count).unwrap_or(0);
            Ok(std::slice::from_raw_parts(start.cast(), count))
        }
    }

    /// An attribute.
    pub fn attribute(&self, name: &CStr) -> Result<Self, Raised> {
        // SAFETY: the name is a live string.
        Self::owned(unsafe { PyObject_GetAttrString(self.as_ptr(), name.as_ptr()) })
    }

    /// Calls the object without an argument.
    pub fn call(&self) -> Result<Self, Raised> {
        // SAFETY: the list of arguments ends with a null pointer.
        Self::owned(unsafe {
            PyObject_CallFunctionObjArgs(self.as_ptr(), ptr::null_mut::<PyObject>())
        })
    }

    /// Its truth value.
    pub fn is_true(&self) -> Result<bool, Raised> {
        // SAFETY: the object is alive.
        match unsafe { PyObject_IsTrue(self.as_ptr()) } {
            -1 => Err(Raised),
            truth => Ok(truth == 1),
        }
    }

    /// Whether it is a `dict` and no subclass of it.
    pub fn is_dict(&self) -> bool {
        self.is_exactly(&raw const PyDict_Type)
    }

    /// The item of a dictionary, if it has one.
    pub fn item(&self, key: &CStr) -> Option<Self> {
        // SAFETY: the key is a live string, and the call checks the type. The dictionary keeps the item alive
        // until it is counted.
        NonNull::new(unsafe { PyDict_GetItemString(self.as_ptr(), key.as_ptr()) })
            .map(Self::borrowed)
    }

    /// Sets an item of a dictionary by a name.
    pub fn set_named(&self, key: &CStr, value: &Self) -> Result<(), Raised> {
        // SAFETY: the key is a live string, and the call checks the type.
        succeeded(unsafe { PyDict_SetItemString(self.as_ptr(), key.as_ptr(), value.as_ptr()) })
    }

    /// Sets an item of a dictionary.
    pub fn set_item(&self, key: &Self, value: &Self) -> Result<(), Raised> {
        // SAFETY: the call checks the type.
        succeeded(unsafe { PyDict_SetItem(self.as_ptr(), key.as_ptr(), value.as_ptr()) })
    }

    /// Removes an item of a dictionary.
    pub fn remove_item(&self, key: &Self) -> Result<(), Raised> {
        // SAFETY: the call checks the type.
        succeeded(unsafe { PyDict_DelItem(self.as_ptr(), key.as_ptr()) })
    }

    /// The number of items of a dictionary.
    pub fn size(&self) -> Py_ssize_t {
        // SAFETY: the call checks the type.
        unsafe { PyDict_Size(self.as_ptr()) }
    }

    /// Inserts an item at the beginning of a list.
    pub fn insert_first(&self, item: &Self) -> Result<(), Raised> {
        // SAFETY: the call checks the type.
        succeeded(unsafe { PyList_Insert(self.as_ptr(), 0, item.as_ptr()) })
    }

    /// Removes the first item of a list.
    pub fn remove_first(&self) -> Result<(), Raised> {
        // SAFETY: the call checks that there is one.
        succeeded(unsafe { PySequence_DelItem(self.as_ptr(), 0) })
    }

    /// The value, if it is plain.
    pub fn plain(&self) -> Option<Plain> {
        if self.is_none() {
            return Some(Plain::None);
        }
        // Of these types themselves, so that no code of the guest runs: a subclass may have its own.
        if self.is_exactly(&raw const PyBool_Type) {
            return self.int().map(|truth| Plain::Bool(truth != 0));
        }
        if self.is_exactly(&raw const PyLong_Type) {
            return self.int().map(Plain::Int);
        }
        if self.is_exactly(&raw const PyFloat_Type) {
            // SAFETY: it is a `float`, so that the call cannot fail.
            let number = unsafe { PyFloat_AsDouble(self.as_ptr()) };
            return number.is_finite().then_some(Plain::Float(number));
        }
        if self.is_exactly(&raw const PyUnicode_Type) {
            return self.ascii().map(Plain::Text);
        }
        None
    }

    /// The value of an `int` that has 64 bits.
    pub fn int(&self) -> Option<i64> {
        let mut overflow: c_int = 0;
        // SAFETY: the pointer is to a live local. An object that is no `int` raises.
        let number = unsafe { PyLong_AsLongLongAndOverflow(self.as_ptr(), &raw mut overflow) };
        if number == -1 && overflow == 0 {
            clear_exception();
        }
        (overflow == 0).then_some(number)
    }

    /// The UTF-8 text of a `str`.
    pub fn to_text(&self) -> Result<String, Raised> {
        // SAFETY: the call checks the type.
        let encoded = Self::owned(unsafe { PyUnicode_AsUTF8String(self.as_ptr()) })?;
        Ok(String::from_utf8_lossy(encoded.as_bytes()?).into_owned())
    }

    /// The text of a `str` of ASCII that is not long.
    fn ascii(&self) -> Option<String> {
        /// `MAX_TEXT` of the guest's `cell.py`.
        const MAX_TEXT: Py_ssize_t = 32 << 10;
        // SAFETY: the object is a `str`.
        let characters = unsafe { PyUnicode_GetLength(self.as_ptr()) };
        if characters > MAX_TEXT {
            return None;
        }
        let Ok(text) = self.to_text() else {
            // It has lone surrogates, or memory is used up.
            clear_exception();
            return None;
        };
        text.is_ascii().then_some(text)
    }

    fn is_exactly(&self, kind: *const PyTypeObject) -> bool {
        // SAFETY: the object is alive, and has a type.
        ptr::eq(unsafe { Py_TYPE(self.as_ptr()) }, kind)
    }
}

/// Compiles source, without what the caller's own code has imported from `__future__`.
pub fn compile(source: &CStr, filename: &CStr, mode: Mode) -> Result<Object, Raised> {
    let start = match mode {
        Mode::Program => Py_file_input,
        Mode::Expression => Py_eval_input,
    };
    // SAFETY: both are live strings.
    Object::owned(unsafe { Py_CompileString(source.as_ptr(), filename.as_ptr(), start) })
}

/// Executes code in a namespace.
pub fn evaluate(code: &Object, namespace: &Object) -> Result<Object, Raised> {
    let namespace = namespace.as_ptr();
    // SAFETY: the code was compiled above, and the namespace is a dictionary.
    Object::owned(unsafe { PyEval_EvalCode(code.as_ptr(), namespace, namespace) })
}

/// Runs the handlers of signals that have arrived.
pub fn handle_signals() -> Result<(), Raised> {
    // SAFETY: no arguments.
    succeeded(unsafe { PyErr_CheckSignals() })
}

/// Drops the exception that is set, if any.
pub fn clear_exception() {
    // SAFETY: no arguments.
    unsafe { PyErr_Clear() }
}

fn succeeded(status: c_int) -> Result<(), Raised> {
    if status == 0 { Ok(()) } else { Err(Raised) }
}

/// A length as CPython counts. Nothing in memory is longer.
fn length(count: usize) -> Py_ssize_t {
    Py_ssize_t::try_from(count).unwrap_or(Py_ssize_t::MAX)
}
