/* norma._calls: the calls of norma.torch in C, for float32 tensors on the CPU that need no conversion.
 *
 * Python checks a tensor in 50 ns and calls a C function through ctypes in 1 us; a layer of 64 features takes
 * less. This module does the same as norma/torch/_kernel.py, with the same results, and returns None for a
 * call that it does not cover. It includes no header of PyTorch and uses the stable interface of CPython 3.9:
 * attributes of tensors are read by their names, and the functions of the library are addresses that Python
 * gives to setup(). One file therefore serves all versions of Python and of PyTorch. */
#include "calls.h"

#define DEFINE(name) PyObject *name;
OBJECTS(DEFINE)
#define DEFINE_NAME(name) PyObject *s_##name;
NAMES(DEFINE_NAME)
calls_library lib;

/* Whether PyTorch is in no state that needs values to be recorded or transformed */
static bool is_plain_state(void)
{
    if (tracing_state != Py_None) {
        PyObject *state = PyObject_CallObject(tracing_state, NULL);
        Py_XDECREF(state);
        if (state != Py_None)
            return false;
    }
    PyObject *stack = PyObject_CallObject(transforms, NULL);
    Py_XDECREF(stack);
    if (stack != Py_None)
        return false;
    PyObject *level = PyDict_GetItem(forward_levels, s__current_level);
    return level && PyLong_AsLong(level) < 0;
}

static bool read_x(call *c, PyObject *x)
{
    tensor_data m;
    if (!memory_of(x, float32, &m) || m.width != c->layer->width || m.elements > INT32_MAX)
        return false;
    c->x = m.data;
    c->rows = (int32_t)(m.elements / m.width);
    return c->rows > 0;
}

static bool read_params(call *c, PyObject *params)
{
    const layer *l = c->layer;
    if (PyTuple_Size(params) != l->n_params)
        return false;
    for (int i = 0; i < l->n_params; i++) {
        tensor_data m;
        if (!memory_of(PyTuple_GetItem(params, i), float32, &m) || m.elements != l->params[i].length)
            return false;
        c->params[i] = m.data;
    }
    return true;
}

static bool needs_gradients(PyObject *x, PyObject *params)
{
    if (!is_current(is_grad_enabled))
        return false;
    bool needed = has_flag(x, s_requires_grad);
    for (Py_ssize_t i = 0; !needed && i < PyTuple_Size(params); i++)
        needed = has_flag(PyTuple_GetItem(params, i), s_requires_grad);
    return needed;
}

static PyObject *apply_function(call *c, PyObject *x, PyObject *params)
{
    PyObject *arguments = PyTuple_New(2 + c->layer->n_params);
    if (!arguments)
        return NULL;
    put(arguments, 0, new_reference(x));
    put(arguments, 1, new_reference((PyObject *)c));
    for (int i = 0; i < c->layer->n_params; i++)
        put(arguments, 2 + i, new_reference(PyTuple_GetItem(params, i)));
    PyObject *result = PyObject_CallObject(apply, arguments);
    Py_DECREF(arguments);
    return result;
}

/* y of (y, penalty), which becomes the module's penalty. Takes the reference. */
static PyObject *take_penalty(const call *c, PyObject *attributes, PyObject *both)
{
    if (!both || !c->layer->has_penalty)
        return both;
    PyObject *y = PyTuple_GetItem(both, 0), *penalty = c->training ? PyTuple_GetItem(both, 1) : Py_None;
    PyObject *before = PyDict_GetItem(attributes, s__penalty);
    bool recomputed = c->training && before && before != Py_None && !has_flag(before, s_requires_grad);
    Py_XINCREF(y);
    if (y && PyDict_SetItem(attributes, s__penalty, penalty) < 0)
        Py_CLEAR(y);
    if (y && recomputed) {
        PyObject *result = PyObject_CallFunctionObjArgs(warn_recomputed, c->module, y, NULL);
        if (!result)
            Py_CLEAR(y);
        Py_XDECREF(result);
    }
    Py_DECREF(both);
    return y;
}

/* false: an exception */
static bool warn_of_one_token(const call *c, PyObject *x)
{
    if (!c->training || c->rows > 1)
        return true;
    PyObject *done = PyObject_CallMethod(c->module, "_warn_of_one_token", "OO", x, Py_None);
    Py_XDECREF(done);
    return done != NULL;
}

/* y of x by the kernels, or None (a new reference) if a tensor does not fit; NULL: an exception */
static PyObject *normalize(layer *l, PyObject *module, PyObject *attributes, PyObject *x, PyObject *params,
                           PyObject *state)
{
    call *c = (call *)PyType_GenericAlloc(call_type, 0);
    if (!c)
        return NULL;
    Py_INCREF((PyObject *)(c->layer = l));
    Py_INCREF(c->module = module);
    Py_INCREF(c->state = state);
    c->training = PyDict_GetItem(attributes, s_training) == Py_True;
    PyObject *y = NULL;
    if (!is_plain_state() || !read_x(c, x) || !read_params(c, params) ||
        !state_memory(l, state, c->state_memory)) {
        PyErr_Clear();
        y = new_reference(Py_None);
    } else if (warn_of_one_token(c, x) && take_pass(c)) {
        y = take_penalty(c, attributes,
                         needs_gradients(x, params) ? apply_function(c, x, params)
                                                    : forward_results(c, x, false));
    }
    Py_DECREF((PyObject *)c);
    return y;
}

/* The layer of a module for the current number of threads, borrowed; NULL: there is none. */
static layer *find_layer(PyObject *attributes)
{
    PyObject *threads = PyObject_CallObject(get_num_threads, NULL),
             *layers = PyDict_GetItem(attributes, s__calls);
    PyObject *found = threads && layers ? PyDict_GetItem(layers, threads) : NULL;
    Py_XDECREF(threads);
    return found && Py_TYPE(found) == layer_type ? (layer *)found : NULL;
}

/* The tensors of a dictionary by name, a new tuple; NULL: one is missing. others: other names, or NULL */
static PyObject *collect(PyObject *names, PyObject *tensors, PyObject *others)
{
    Py_ssize_t n = names ? PyTuple_Size(names) : -1;
    PyObject *found = n >= 0 && tensors ? PyTuple_New(n) : NULL;
    for (Py_ssize_t i = 0; found && i < n; i++) {
        PyObject *name = PyTuple_GetItem(names, i), *other = others ? PyDict_GetItem(others, name) : NULL;
        PyObject *tensor = PyDict_GetItem(tensors, other ? other : name);
        if (!tensor || tensor == Py_None)
            Py_CLEAR(found);
        else
            put(found, i, new_reference(tensor));
    }
    return found;
}

static bool is_default(PyObject *attributes)
{
    PyObject *statistics = PyDict_GetItem(attributes, s__statistics);
    PyObject *offset = PyDict_GetItem(attributes, s__offset);
    return PyDict_GetItem(attributes, s_kernel) == Py_True &&
           PyDict_GetItem(attributes, s__padding_mask) == Py_None &&
           PyDict_GetItem(attributes, s__model_mask) == Py_None && statistics && offset &&
           (statistics == s_process || PyUnicode_Compare(statistics, s_process) == 0) &&
           PyFloat_AsDouble(offset) == 0;
}

/* forward(module, x): y, or None if the module or x is not of the kind that this function covers */
static PyObject *forward(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
    (void)self;
    if (n != 2) {
        PyErr_SetString(PyExc_TypeError, "forward(module, x)");
        return NULL;
    }
    PyObject *attributes = is_plain_tensor(args[1]) ? PyObject_GetAttr(args[0], s___dict__) : NULL;
    layer *l = attributes && is_default(attributes) ? find_layer(attributes) : NULL;
    PyObject *y = NULL, *params = NULL, *state = NULL;
    if (l) {
        PyObject *names = PyDict_GetItem(attributes, s__names);
        params = collect(names ? PyTuple_GetItem(names, 0) : NULL, PyDict_GetItem(attributes, s__parameters),
                         PyDict_GetItem(attributes, s__attributes));
        state =
            params ? collect(PyTuple_GetItem(names, 1), PyDict_GetItem(attributes, s__buffers), NULL) : NULL;
    }
    if (params && state) {
        Py_INCREF((PyObject *)l);
        y = normalize(l, args[0], attributes, args[1], params, state);
        Py_DECREF((PyObject *)l);
    } else {
        PyErr_Clear();
        y = new_reference(Py_None);
    }
    Py_XDECREF(attributes);
    Py_XDECREF(params);
    Py_XDECREF(state);
    return y;
}

/* normalize(module, layer, x, params, state): as forward, with tensors that the caller has found. params,
 * state: tuples */
static PyObject *normalize_given(PyObject *self, PyObject *args)
{
    PyObject *module, *l, *x, *params, *state;
    (void)self;
    if (!PyArg_ParseTuple(args, "OO!OO!O!", &module, layer_type, &l, &x, &PyTuple_Type, &params,
                          &PyTuple_Type, &state))
        return NULL;
    PyObject *attributes = PyObject_GetAttr(module, s___dict__);
    PyObject *y = attributes ? normalize((layer *)l, module, attributes, x, params, state) : NULL;
    Py_XDECREF(attributes);
    return y;
}

static bool read_address(PyObject *addresses, const char *name, void *function)
{
    PyObject *found = PyDict_GetItemString(addresses, name);
    void *address = found ? PyLong_AsVoidPtr(found) : NULL;
    memcpy(function, &address, sizeof address);
    return address;
}

/* setup(addresses, objects): addresses of functions of the library, objects of PyTorch, by name */
static PyObject *setup(PyObject *self, PyObject *args)
{
    PyObject *addresses, *objects;
    (void)self;
    if (!PyArg_ParseTuple(args, "O!O!", &PyDict_Type, &addresses, &PyDict_Type, &objects))
        return NULL;
    bool found = read_address(addresses, "nm_norm_pass_forward", &lib.forward) &&
                 read_address(addresses, "nm_norm_pass_infer", &lib.infer) &&
                 read_address(addresses, "nm_norm_pass_backward", &lib.backward) &&
                 read_address(addresses, "nm_norm_pass_penalty", &lib.penalty) &&
                 read_address(addresses, "nm_norm_zero_grads", &lib.zero_grads);
#define READ(object)                                                                                         \
    found = found && (object = PyDict_GetItemString(objects, #object)) != NULL;                              \
    Py_XINCREF(object);
    OBJECTS(READ)
    if (!found) {
        PyErr_SetString(PyExc_KeyError, "norma._calls.setup: a function or an object is missing");
        return NULL;
    }
    use_exchange();
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"setup", setup, METH_VARARGS, NULL},
    {"forward", (PyCFunction)(void (*)(void))forward, METH_FASTCALL, NULL},
    {"normalize", normalize_given, METH_VARARGS, NULL},
    {"function_forward", (PyCFunction)(void (*)(void))function_forward, METH_FASTCALL, NULL},
    {"function_backward", (PyCFunction)(void (*)(void))function_backward, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_calls", NULL, -1, functions, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__calls(void)
{
    PyObject *module = PyModule_Create(&definition);
#define INTERN(name)                                                                                         \
    if (module && !(s_##name = PyUnicode_InternFromString(#name)))                                           \
        Py_CLEAR(module);
    NAMES(INTERN)
    if (!module)
        return NULL;
    if (!create_types() || PyModule_AddObject(module, "Layer", (PyObject *)layer_type) < 0) {
        Py_DECREF(module);
        return NULL;
    }
    Py_INCREF((PyObject *)layer_type); /* for this file */
    return module;
}
