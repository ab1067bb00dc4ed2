"""Slots of Python objects (`__slots__`), read and written where they lie.

Inline only: there is no module of this name at run time. Everything here needs the GIL.
"""
from cpython.ref cimport PyObject

cdef extern from *:
    """
    #include <structmember.h>
    // Where a slot lies in the objects of a class; 0: it is none.
    static inline Py_ssize_t ord_slot_of(PyObject* descriptor) {
        if (Py_TYPE(descriptor) != &PyMemberDescr_Type) return 0;
        return ((PyMemberDescrObject*) descriptor)->d_member->offset;
    }
    static inline PyObject** ord_slot(PyObject* object, Py_ssize_t at) {
        return (PyObject**) ((char*) object + at);
    }
    // Puts a value into a slot or item, with a reference of its own; returns what was there, or NULL.
    static inline PyObject* ord_put(PyObject** at, PyObject* value) {
        PyObject* before = *at;
        Py_INCREF(value);
        *at = value;
        return before;
    }
    """
    Py_ssize_t ord_slot_of(object descriptor)
    PyObject** ord_slot(PyObject* object, Py_ssize_t at)
    PyObject* ord_put(PyObject** at, PyObject* value)
    void Py_XDECREF(PyObject*)


cdef inline Py_ssize_t slot_of(object cls, str name) except -1:
    """Where a slot of a class lies in its objects. Raises AssertionError where it is no slot."""
    cdef Py_ssize_t at = ord_slot_of(getattr(cls, name))
    if at == 0:
        raise AssertionError(f"{name!r} has no slot")
    return at
