//! Owned references to Python objects.
//!
//! All functions are called from a function of the module, so with the GIL held. The SAFETY comments name the
//! additional requirements. Using a guest's object may run arbitrary guest code, which cannot make these calls unsound.

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

/// An owned reference to a Python object.
#[derive(Debug, Eq, PartialEq)]
pub struct Object(NonNull<PyObject>);

/// Marker: an exception is set in the interpreter.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Raised;

/// The grammar start symbol for compiling source.
#[derive(Clone, Copy, Debug)]
pub enum Mode {
    /// Statements.
    Program,
    /// One expression.
    Expression,
}

/// A value that JSON represents exactly.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Plain {
    /// `None`, encoded as `null`.
    None,
    /// `True` or `False`.
    Bool(bool),
    /// An integer that fits into 64 bits.
    Int(i64),
    /// A finite number.
    Float(f64),
    /// An ASCII string.
    Text(String),
}

impl Drop for Object {
    fn drop(&mut self) {
        // SAFETY: this value owns one reference and releases it once.
        unsafe { Py_DecRef(self.0.as_ptr()) }
    }
}

impl Clone for Object {
    fn clone(&self) -> Self {
        Self::borrowed(self.0)
    }
}

impl Object {
    /// Takes ownership of a new reference. A null pointer means that an exception is set.
    pub(super) fn owned(new: *mut PyObject) -> Result<Self, Raised> {
        NonNull::new(new).map(Self).ok_or(Raised)
    }

    /// Creates a new reference to an object that another reference keeps alive.
    pub(super) fn borrowed(object: NonNull<PyObject>) -> Self {
        // SAFETY: another reference keeps the object alive.
        unsafe { Py_IncRef(object.as_ptr()) };
        Self(object)
    }

    /// Releases ownership, for a call that steals the reference.
    pub(super) fn into_raw(self) -> *mut PyObject {
        std::mem::ManuallyDrop::new(self).0.as_ptr()
    }

    pub(super) fn as_ptr(&self) -> *mut PyObject {
        self.0.as_ptr()
    }

    /// Returns `None`.
    pub fn none() -> Self {
        // SAFETY: the object lives as long as the interpreter.
        let none = unsafe { Py_None() };
        // `None` exists before the interpreter loads any module.
        NonNull::new(none).map_or_else(|| std::process::abort(), Self::borrowed)
    }

    /// Returns whether the object is `None`.
    pub fn is_none(&self) -> bool {
        *self == Self::none()
    }

    /// Creates a `str`.
    pub fn text(text: &str) -> Result<Self, Raised> {
        // SAFETY: pointer and length describe one live string, which is copied.
        Self::owned(unsafe {
            PyUnicode_FromStringAndSize(text.as_ptr().cast(), length(text.len()))
        })
    }

    /// Creates a `bytes`.
    pub fn bytes(bytes: &[u8]) -> Result<Self, Raised> {
        // SAFETY: pointer and length describe one live slice, which is copied.
        Self::owned(unsafe {
            PyBytes_FromStringAndSize(bytes.as_ptr().cast(), length(bytes.len()))
        })
    }

    /// Creates an `int`.
    pub fn count(count: usize) -> Result<Self, Raised> {
        // SAFETY: integer arguments only.
        Self::owned(unsafe { PyLong_FromSize_t(count) })
    }

    /// Creates a `bool`.
    pub fn truth(truth: bool) -> Result<Self, Raised> {
        // SAFETY: integer arguments only.
        Self::owned(unsafe { PyBool_FromLong(truth.into()) })
    }

    /// Creates a `list`.
    pub fn list(items: Vec<Self>) -> Result<Self, Raised> {
        // SAFETY: integer arguments only.
        let list = Self::owned(unsafe { PyList_New(length(items.len())) })?;
        for (index, item) in (0..).zip(items) {
            // SAFETY: the list is new and has as many slots as items, and each slot is filled once. The call steals the
            // reference.
            succeeded(unsafe { PyList_SetItem(list.as_ptr(), index, item.into_raw()) })?;
        }
        Ok(list)
    }

    /// Creates a `tuple`.
    pub fn tuple(items: Vec<Self>) -> Result<Self, Raised> {
        let list = Self::list(items)?;
        // SAFETY: the object is a `list`.
        Self::owned(unsafe { PyList_AsTuple(list.as_ptr()) })
    }

    /// Creates a module. Returns it with its namespace.
    pub fn module(name: &CStr) -> Result<(Self, Self), Raised> {
        // SAFETY: the name is a live C string.
        let module = Self::owned(unsafe { PyModule_New(name.as_ptr()) })?;
        // SAFETY: the object is a module, which keeps its namespace alive.
        let namespace = NonNull::new(unsafe { PyModule_GetDict(module.as_ptr()) }).ok_or(Raised)?;
        Ok((module, Self::borrowed(namespace)))
    }

    /// Returns an attribute of `sys`, if it exists.
    pub fn system(name: &CStr) -> Option<Self> {
        // SAFETY: the name is a live C string. The module keeps the object alive until the new reference is created.
        NonNull::new(unsafe { PySys_GetObject(name.as_ptr()) }).map(Self::borrowed)
    }

    /// Sets an attribute of `sys`.
    pub fn set_system(name: &CStr, value: &Self) -> Result<(), Raised> {
        // SAFETY: the name is a live C string.
        succeeded(unsafe { PySys_SetObject(name.as_ptr(), value.as_ptr()) })
    }

    /// Takes the current exception, with its traceback, and clears it in the interpreter.
    pub fn exception() -> Self {
        let (mut kind, mut value, mut traceback) =
            (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        // SAFETY: the pointers are to live locals, which the calls set to new references or null.
        let [kind, value, traceback] = unsafe {
            PyErr_Fetch(&raw mut kind, &raw mut value, &raw mut traceback);
            PyErr_NormalizeException(&raw mut kind, &raw mut value, &raw mut traceback);
            [kind, value, traceback].map(|new| NonNull::new(new).map(Self))
        };
        if let (Some(value), Some(traceback)) = (&value, &traceback) {
            // SAFETY: a normalized exception is an instance of an exception class.
            unsafe { PyException_SetTraceback(value.as_ptr(), traceback.as_ptr()) };
        }
        drop(kind);
        value.unwrap_or_else(Self::none)
    }

    /// Returns the items of a tuple, which must have exactly `N`.
    pub fn items<const N: usize>(&self) -> Result<[Self; N], Raised> {
        let mut items = Vec::with_capacity(N);
        for index in 0..length(N) {
            // SAFETY: the call checks type and index. The tuple keeps the item alive until the new reference is
            // created.
            let item = unsafe { PyTuple_GetItem(self.as_ptr(), index) };
            items.push(Self::borrowed(NonNull::new(item).ok_or(Raised)?));
        }
        items.try_into().map_err(|_| Raised)
    }

    /// Returns the contents of a `bytes`.
    pub fn as_bytes(&self) -> Result<&[u8], Raised> {
        let (mut start, mut count) = (ptr::null_mut(), 0);
        // SAFETY: the call checks the type. The contents are immutable and live as long as the object, which the result
        // borrows.
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

    /// Returns an attribute.
    pub fn attribute(&self, name: &CStr) -> Result<Self, Raised> {
        // SAFETY: the name is a live C string.
        Self::owned(unsafe { PyObject_GetAttrString(self.as_ptr(), name.as_ptr()) })
    }

    /// Calls the object without arguments.
    pub fn call(&self) -> Result<Self, Raised> {
        // SAFETY: the argument list ends with a null pointer.
        Self::owned(unsafe {
            PyObject_CallFunctionObjArgs(self.as_ptr(), ptr::null_mut::<PyObject>())
        })
    }

    /// Returns the truth value.
    pub fn is_true(&self) -> Result<bool, Raised> {
        // SAFETY: the object is alive.
        match unsafe { PyObject_IsTrue(self.as_ptr()) } {
            -1 => Err(Raised),
            truth => Ok(truth == 1),
        }
    }

    /// Returns whether the object is a `dict`, and not an instance of a subclass.
    pub fn is_dict(&self) -> bool {
        self.is_exactly(&raw const PyDict_Type)
    }

    /// Returns an item of a dictionary, if it exists.
    pub fn item(&self, key: &CStr) -> Option<Self> {
        // SAFETY: the key is a live C string, and the call checks the type. The dictionary keeps the item alive until
        // the new reference is created.
        NonNull::new(unsafe { PyDict_GetItemString(self.as_ptr(), key.as_ptr()) })
            .map(Self::borrowed)
    }

    /// Sets an item of a dictionary by a string key.
    pub fn set_named(&self, key: &CStr, value: &Self) -> Result<(), Raised> {
        // SAFETY: the key is a live C string, and the call checks the type.
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

    /// Returns the number of items of a dictionary.
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
        // SAFETY: the call checks that an item exists.
        succeeded(unsafe { PySequence_DelItem(self.as_ptr(), 0) })
    }

    /// Returns the value, if it is plain.
    pub fn plain(&self) -> Option<Plain> {
        if self.is_none() {
            return Some(Plain::None);
        }
        // Exact types only, so that no guest code runs: a subclass may override methods.
        if self.is_exactly(&raw const PyBool_Type) {
            return self.int().map(|truth| Plain::Bool(truth != 0));
        }
        if self.is_exactly(&raw const PyLong_Type) {
            return self.int().map(Plain::Int);
        }
        if self.is_exactly(&raw const PyFloat_Type) {
            // SAFETY: the object is a `float`, so the call cannot fail.
            let number = unsafe { PyFloat_AsDouble(self.as_ptr()) };
            return number.is_finite().then_some(Plain::Float(number));
        }
        if self.is_exactly(&raw const PyUnicode_Type) {
            return self.ascii().map(Plain::Text);
        }
        None
    }

    /// Returns the value of an `int`, if it fits into 64 bits.
    pub fn int(&self) -> Option<i64> {
        let mut overflow: c_int = 0;
        // SAFETY: the pointer is to a live local. An object that is not an `int` raises.
        let number = unsafe { PyLong_AsLongLongAndOverflow(self.as_ptr(), &raw mut overflow) };
        if number == -1 && overflow == 0 {
            clear_exception();
        }
        (overflow == 0).then_some(number)
    }

    /// Returns the text of a `str`.
    pub fn to_text(&self) -> Result<String, Raised> {
        // SAFETY: the call checks the type.
        let encoded = Self::owned(unsafe { PyUnicode_AsUTF8String(self.as_ptr()) })?;
        Ok(String::from_utf8_lossy(encoded.as_bytes()?).into_owned())
    }

    /// Returns the text of a `str` that is ASCII and not long.
    fn ascii(&self) -> Option<String> {
        /// `MAX_TEXT` of the guest's `cell.py`.
        const MAX_TEXT: Py_ssize_t = 32 << 10;
        // SAFETY: the object is a `str`.
        let characters = unsafe { PyUnicode_GetLength(self.as_ptr()) };
        if characters > MAX_TEXT {
            return None;
        }
        let Ok(text) = self.to_text() else {
            // The string has lone surrogates, or memory is exhausted.
            clear_exception();
            return None;
        };
        text.is_ascii().then_some(text)
    }

    fn is_exactly(&self, kind: *const PyTypeObject) -> bool {
        // SAFETY: the object is alive, and every object has a type.
        ptr::eq(unsafe { Py_TYPE(self.as_ptr()) }, kind)
    }
}

/// Compiles source, without the `__future__` features of the calling code.
pub fn compile(source: &CStr, filename: &CStr, mode: Mode) -> Result<Object, Raised> {
    let start = match mode {
        Mode::Program => Py_file_input,
        Mode::Expression => Py_eval_input,
    };
    // SAFETY: both are live C strings.
    Object::owned(unsafe { Py_CompileString(source.as_ptr(), filename.as_ptr(), start) })
}

/// Executes code in a namespace.
pub fn evaluate(code: &Object, namespace: &Object) -> Result<Object, Raised> {
    let namespace = namespace.as_ptr();
    // SAFETY: the code was compiled above, and the namespace is a dictionary.
    Object::owned(unsafe { PyEval_EvalCode(code.as_ptr(), namespace, namespace) })
}

/// Runs the handlers of pending signals.
pub fn handle_signals() -> Result<(), Raised> {
    // SAFETY: no arguments.
    succeeded(unsafe { PyErr_CheckSignals() })
}

/// Clears the current exception, if any.
pub fn clear_exception() {
    // SAFETY: no arguments.
    unsafe { PyErr_Clear() }
}

fn succeeded(status: c_int) -> Result<(), Raised> {
    if status == 0 { Ok(()) } else { Err(Raised) }
}

/// Converts a length to CPython's type. No object in memory is longer.
fn length(count: usize) -> Py_ssize_t {
    Py_ssize_t::try_from(count).unwrap_or(Py_ssize_t::MAX)
}
