"""Bases of the classes of rows that functions get: what `NamedTuple` and `NamedSlots` of
`ordstream/ground/rows.py` mean, without a call of Python for `row[0]` or `row["x"]`.

Cython makes no subclass of tuple, and Python none with an index of its own that costs `row[0]` nothing.
"""

cdef extern from *:
    """
    static PyObject* ord_places;
    // row["x"]: the class knows where; row[0], row[1:]: as of any tuple
    static PyObject* ord_tuple_at(PyObject* row, PyObject* key) {
        if (PyLong_CheckExact(key)) {                          // quicker than the tuple's own way
            Py_ssize_t i = PyLong_AsSsize_t(key);
            Py_ssize_t n = PyTuple_GET_SIZE(row);
            if (i == -1 && PyErr_Occurred()) {                 // too large for C: the tuple tells it
                PyErr_Clear();
                i = n;
            }
            if (i < 0) i += n;
            if (i >= 0 && i < n) return Py_NewRef(PyTuple_GET_ITEM(row, i));
        }
        if (!PyUnicode_Check(key)) return PyTuple_Type.tp_as_mapping->mp_subscript(row, key);
        PyObject* places = PyObject_GetAttr((PyObject*) Py_TYPE(row), ord_places);
        if (places == NULL) return NULL;
        PyObject* place = PyDict_Check(places) ? PyDict_GetItemWithError(places, key) : NULL;
        PyObject* value = NULL;
        if (place != NULL) {
            Py_ssize_t i = PyLong_AsSsize_t(place);
            value = i == -1 && PyErr_Occurred() ? NULL : PyTuple_GetItem(row, i);
            Py_XINCREF(value);
        } else if (!PyErr_Occurred()) {
            value = PyObject_CallMethod(row, "__missing__", "O", key);
        }
        Py_DECREF(places);
        return value;
    }
    static PyObject* ord_slot_at(PyObject* row, PyObject* key) {
        return PyObject_GenericGetAttr(row, key);
    }
    static PyType_Slot ord_tuple_slots[] = {{Py_mp_subscript, (void*) ord_tuple_at}, {0, NULL}};
    static PyType_Slot ord_slotted_slots[] = {{Py_mp_subscript, (void*) ord_slot_at}, {0, NULL}};
    static PyType_Spec ord_tuple_spec = {
        "ordstream._core.state.named_rows.NamedTuple", 0, 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
        ord_tuple_slots};
    static PyType_Spec ord_slotted_spec = {
        "ordstream._core.state.named_rows.NamedSlots", 0, 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
        ord_slotted_slots};
    static PyObject* ord_named_tuple(void) {
        ord_places = PyUnicode_InternFromString("__places__");
        if (ord_places == NULL) return NULL;
        return PyType_FromSpecWithBases(&ord_tuple_spec, (PyObject*) &PyTuple_Type);
    }
    static PyObject* ord_named_slots(void) { return PyType_FromSpec(&ord_slotted_spec); }
    """
    object ord_named_tuple()
    object ord_named_slots()

NamedTuple = ord_named_tuple()
NamedSlots = ord_named_slots()
