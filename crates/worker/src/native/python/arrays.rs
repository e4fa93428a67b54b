//! The memory of numpy's arrays (NEP 49), which numpy takes from the C library and not from the interpreter.

use std::ffi::{CStr, CString, c_char, c_uint, c_void};
use std::ptr;

use pyo3_ffi::{
    Py_DecRef, PyCapsule_GetPointer, PyCapsule_New, PyDict_GetItemString, PyErr_Clear, PyObject,
    PyObject_GetAttrString, PySys_GetObject,
};

use super::allocators::{Admission, Allocator, FreeSized, free_sized, guarded};

/// `PyDataMem_Handler` of numpy's ndarraytypes.h, version 1.
#[repr(C)]
struct Handler {
    name: [c_char; 127],
    version: u8,
    allocator: Allocator<FreeSized>,
}

const CAPSULE: &CStr = c"mem_handler";

/// Places in numpy's table of functions (numpy_api.py), which are the same in all versions of an ABI.
const ABI_VERSION: usize = 0;
const API_VERSION: usize = 211;
const SET_HANDLER: usize = 304;
const GET_HANDLER: usize = 305;

/// `NPY_VERSION` of numpy 1 and of numpy 2.
const KNOWN_ABIS: [c_uint; 2] = [0x0100_0009, 0x0200_0000];
/// `NPY_1_22_API_VERSION`, the first with handlers.
const LEAST_API: c_uint = 0xf;

/// From now on `A` decides about the data of each array that the calling thread makes.
///
/// `module` is the one with numpy's table. Does nothing if it is of a version without handlers, or unknown.
pub fn guard_arrays<A: Admission>(module: &str) {
    let Ok(module) = CString::new(module) else {
        return;
    };
    // SAFETY: called from a function of the module, so with the interpreter's lock held. The table is numpy's for
    // the process's life, and its functions have these types in the versions that were checked. The handler is
    // leaked, because arrays keep a reference to its capsule, which keeps none to it.
    unsafe {
        let Some(table) = table(&module) else {
            PyErr_Clear();
            return;
        };
        let version = |place: usize| -> c_uint {
            let ask: extern "C" fn() -> c_uint = std::mem::transmute(*table.add(place));
            ask()
        };
        if !KNOWN_ABIS.contains(&version(ABI_VERSION)) || version(API_VERSION) < LEAST_API {
            return;
        }
        let get: extern "C" fn() -> *mut PyObject = std::mem::transmute(*table.add(GET_HANDLER));
        let set: extern "C" fn(*mut PyObject) -> *mut PyObject =
            std::mem::transmute(*table.add(SET_HANDLER));
        let before = get();
        let handler = PyCapsule_GetPointer(before, CAPSULE.as_ptr()).cast::<Handler>();
        if !handler.is_null() {
            let own = Box::new(Handler {
                name: (*handler).name,
                version: (*handler).version,
                allocator: guarded::<A, _>((*handler).allocator, free_sized),
            });
            let own = ptr::from_mut(Box::leak(own)).cast::<c_void>();
            let capsule = PyCapsule_New(own, CAPSULE.as_ptr(), None);
            let replaced = set(capsule);
            Py_DecRef(replaced);
            Py_DecRef(capsule);
        }
        Py_DecRef(before);
        PyErr_Clear();
    }
}

/// The table that the module exports.
///
/// # Safety
///
/// The interpreter's lock is held.
unsafe fn table(module: &CStr) -> Option<*const *const c_void> {
    // SAFETY: the references to `sys.modules` and to the module are borrowed, and used before other code runs. The
    // capsule is the module's, so that its pointer outlives the reference.
    unsafe {
        let modules = PySys_GetObject(c"modules".as_ptr());
        let module = PyDict_GetItemString(modules, module.as_ptr());
        if module.is_null() {
            return None;
        }
        let capsule = PyObject_GetAttrString(module, c"_ARRAY_API".as_ptr());
        if capsule.is_null() {
            return None;
        }
        let table = PyCapsule_GetPointer(capsule, ptr::null());
        Py_DecRef(capsule);
        (!table.is_null()).then_some(table.cast())
    }
}
