/* Forward and backward passes of norma._calls: the memory of a layer, tensors, a function of autograd. */
#include "calls.h"

PyTypeObject *layer_type, *call_type;

static void dealloc_object(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static void dealloc_layer(PyObject *self)
{
    layer *l = (layer *)self;
    Py_XDECREF(l->owner);
    Py_XDECREF(l->passes);
    Py_XDECREF(l->lock);
    dealloc_object(self);
}

static bool read_vectors(PyObject *list, vector *vectors, int *count)
{
    *count = (int)PyTuple_Size(list);
    if (*count < 0 || *count > MAX_TENSORS)
        return false;
    for (int i = 0; i < *count; i++) {
        unsigned long long memory, grad;
        long long length;
        if (!PyArg_ParseTuple(PyTuple_GetItem(list, i), "KLK", &memory, &length, &grad))
            return false;
        vectors[i] = (vector){(float *)(uintptr_t)memory, (float *)(uintptr_t)grad, length};
    }
    return true;
}

/* Layer(owner, passes, lock, handle, width, has_penalty, params, state, counters): params and state are
 * tuples of (address, length, address of the gradient or 0), counters a tuple of addresses. */
static PyObject *new_layer(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    PyObject *owner, *passes, *lock, *params, *state, *counters;
    unsigned long long handle;
    int width, has_penalty;
    (void)keywords;
    if (!PyArg_ParseTuple(args, "OO!OKipO!O!O!", &owner, &PyList_Type, &passes, &lock, &handle, &width,
                          &has_penalty, &PyTuple_Type, &params, &PyTuple_Type, &state, &PyTuple_Type,
                          &counters))
        return NULL;
    layer *l = (layer *)PyType_GenericAlloc(type, 0);
    if (!l)
        return NULL;
    Py_INCREF(l->owner = owner);
    Py_INCREF(l->passes = passes);
    Py_INCREF(l->lock = lock);
    l->norm = (nm_norm *)(uintptr_t)handle;
    l->width = width;
    l->has_penalty = has_penalty;
    l->n_counters = (int)PyTuple_Size(counters);
    bool fits = read_vectors(params, l->params, &l->n_params) && read_vectors(state, l->state, &l->n_state) &&
                l->n_state + l->n_counters < MAX_TENSORS;
    for (int i = 0; fits && i < l->n_counters; i++)
        l->counters[i] = PyLong_AsVoidPtr(PyTuple_GetItem(counters, i));
    if (fits && !PyErr_Occurred())
        return (PyObject *)l;
    if (!PyErr_Occurred())
        PyErr_SetString(PyExc_ValueError, "norma._calls.Layer: too many vectors");
    Py_DECREF(l);
    return NULL;
}

static int traverse_call(PyObject *self, visitproc visit, void *arg)
{
    call *c = (call *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(c->module);
    Py_VISIT(c->state);
    return 0;
}

static int clear_call(PyObject *self)
{
    call *c = (call *)self;
    Py_CLEAR(c->module);
    Py_CLEAR(c->state);
    return 0;
}

static void dealloc_call(PyObject *self)
{
    call *c = (call *)self;
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject_GC_UnTrack(self);
    if (c->pass_object && PyList_Append(c->layer->passes, c->pass_object) < 0)
        PyErr_Clear(); /* its memory is freed with that of the layer */
    Py_XDECREF(c->pass_object);
    clear_call(self);
    Py_XDECREF(c->before);
    Py_XDECREF((PyObject *)c->layer);
    PyErr_Restore(type, value, traceback);
    dealloc_object(self);
}

bool take_pass(call *c)
{
    Py_ssize_t free_passes = PyList_Size(c->layer->passes);
    if (free_passes > 0) {
        c->pass_object = PyList_GetItem(c->layer->passes, free_passes - 1);
        Py_XINCREF(c->pass_object);
        if (PyList_SetSlice(c->layer->passes, free_passes - 1, free_passes, NULL) < 0)
            Py_CLEAR(c->pass_object);
    } else {
        c->pass_object = PyObject_CallMethodObjArgs(c->layer->owner, s_acquire_pass, NULL);
    }
    PyObject *handle = c->pass_object ? PyObject_GetAttr(c->pass_object, s_handle) : NULL;
    c->pass = handle ? PyLong_AsVoidPtr(handle) : NULL;
    Py_XDECREF(handle);
    return c->pass;
}

/* Call.before, a list of bytes: the vectors and counters before the forward pass in training mode; None
 * otherwise. */
static PyObject *get_before(PyObject *self, void *closure)
{
    const call *c = (const call *)self;
    (void)closure;
    if (!c->before)
        Py_RETURN_NONE;
    PyObject *list = PyList_New(0);
    const char *bytes = PyBytes_AsString(c->before);
    for (Py_ssize_t i = 0; list && i < PyTuple_Size(c->state); i++) {
        Py_ssize_t size = i < c->layer->n_state ? c->layer->state[i].length * (Py_ssize_t)sizeof(float)
                                                : (Py_ssize_t)sizeof(int64_t);
        PyObject *part = PyBytes_FromStringAndSize(bytes, size);
        if (!part || PyList_Append(list, part) < 0)
            Py_CLEAR(list);
        Py_XDECREF(part);
        bytes += size;
    }
    return list;
}

static PyObject *get_member(PyObject *self, void *closure)
{
    call *c = (call *)self;
    PyObject *found = closure == s_training ? (c->training ? Py_True : Py_False)
                      : closure == s_state  ? c->state
                                            : c->module;
    return new_reference(found ? found : Py_None);
}

static size_t bytes_of(const vector *v)
{
    return (size_t)v->length * sizeof(float);
}

/* Copies parameters and state to the layer. The state may have a counter more than the layer, which counts
 * batches. */
static void load(const layer *l, const float *const *params, void *const *state)
{
    for (int i = 0; i < l->n_params; i++)
        memcpy(l->params[i].memory, params[i], bytes_of(&l->params[i]));
    for (int i = 0; i < l->n_state; i++)
        memcpy(l->state[i].memory, state[i], bytes_of(&l->state[i]));
    for (int i = 0; i < l->n_counters; i++)
        *l->counters[i] = *(int64_t *)state[l->n_state + i];
}

static void store_vectors(const layer *l, void *const *state)
{
    for (int i = 0; i < l->n_state; i++)
        memcpy(state[i], l->state[i].memory, bytes_of(&l->state[i]));
}

bool state_memory(const layer *l, PyObject *state, void **addresses)
{
    Py_ssize_t n = PyTuple_Size(state), without_count = l->n_state + l->n_counters;
    if (n != without_count && !(n == without_count + 1 && !l->n_counters))
        return false;
    for (Py_ssize_t i = 0; i < n; i++) {
        bool counts = i >= l->n_state;
        tensor_data m;
        if (!memory_of(PyTuple_GetItem(state, i), counts ? int64 : float32, &m) ||
            m.elements != (counts ? 1 : l->state[i].length))
            return false;
        addresses[i] = m.data;
    }
    return true;
}

static bool lock(const layer *l)
{
    PyObject *result = PyObject_CallMethodObjArgs(l->lock, s_acquire, NULL);
    Py_XDECREF(result);
    return result;
}

/* Keeps an exception. */
static bool unlock(const layer *l)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *result = PyObject_CallMethodObjArgs(l->lock, s_release, NULL);
    Py_XDECREF(result);
    if (type)
        PyErr_Restore(type, value, traceback);
    return result && !type;
}

static bool check(nm_status status, const nm_error *err)
{
    if (status == NM_OK)
        return true;
    PyObject *result = PyObject_CallFunction(raise_error, "is", (int)status, err->text);
    Py_XDECREF(result);
    if (!PyErr_Occurred())
        PyErr_SetString(PyExc_RuntimeError, err->text);
    return false;
}

static PyObject *snapshot(const layer *l, void *const *state, Py_ssize_t n)
{
    size_t size = 0;
    for (int i = 0; i < l->n_state; i++)
        size += bytes_of(&l->state[i]);
    size += (size_t)(n - l->n_state) * sizeof(int64_t);
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
    char *to = bytes ? PyBytes_AsString(bytes) : NULL;
    for (Py_ssize_t i = 0; to && i < n; i++) {
        size_t part = i < l->n_state ? bytes_of(&l->state[i]) : sizeof(int64_t);
        memcpy(to, state[i], part);
        to += part;
    }
    return bytes;
}

static nm_status run_kernel(const call *c, float *y, nm_error *err)
{
    nm_status (*function)(nm_norm_pass *, int32_t, const void *, void *, nm_error *) =
        c->training ? lib.forward : lib.infer;
    nm_status status;
    if ((int64_t)c->rows * c->layer->width < MANY_ELEMENTS)
        return function(c->pass, c->rows, c->x, y, err);
    Py_BEGIN_ALLOW_THREADS status = function(c->pass, c->rows, c->x, y, err);
    Py_END_ALLOW_THREADS return status;
}

/* y; in training mode also updates the state. */
static bool run(call *c, float *y, bool keeps_before)
{
    const layer *l = c->layer;
    void *const *state = c->state_memory;
    Py_ssize_t n = PyTuple_Size(c->state);
    nm_error err;
    if (keeps_before && c->training && n && !(c->before = snapshot(l, state, n)))
        return false;
    if (!lock(l))
        return false;
    load(l, c->params, state);
    bool done = check(run_kernel(c, y, &err), &err);
    for (int i = 0; i < l->n_counters; i++)
        c->counters[i] = *l->counters[i];
    if (done && c->training) {
        store_vectors(l, state);
        for (int i = 0; i < l->n_counters; i++)
            *(int64_t *)state[l->n_state + i] = c->counters[i];
        if (n > l->n_state + l->n_counters)
            ++*(int64_t *)state[n - 1];
    }
    return unlock(l) && done;
}

/* A scalar tensor; 0 in evaluation mode */
static PyObject *penalty_of(const call *c, PyObject *x)
{
    PyObject *shape = PyTuple_New(0);
    PyObject *scalar = shape ? PyObject_CallMethodObjArgs(x, s_new_empty, shape, NULL) : NULL;
    tensor_data m;
    bool fits = scalar && memory_of(scalar, float32, &m);
    Py_XDECREF(shape);
    if (!fits) {
        Py_XDECREF(scalar);
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_RuntimeError, "norma.torch: no memory of the penalty");
        return NULL;
    }
    *(float *)m.data = c->training ? (float)lib.penalty(c->pass) : 0;
    return scalar;
}

PyObject *forward_results(call *c, PyObject *x, bool keeps_before)
{
    float *data;
    PyObject *y = like(x, &data), *penalty = NULL, *both = NULL;
    if (!y || !run(c, data, keeps_before))
        goto fail;
    if (!c->layer->has_penalty)
        return y;
    penalty = penalty_of(c, x);
    both = penalty ? PyTuple_Pack(2, y, penalty) : NULL;
fail:
    Py_XDECREF(y);
    Py_XDECREF(penalty);
    return both;
}

/* function_forward(ctx, x, call, *params), of the torch.autograd.Function */
PyObject *function_forward(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
    (void)self;
    if (n < 3 || Py_TYPE(args[2]) != call_type || n - 3 != ((call *)args[2])->layer->n_params) {
        PyErr_SetString(PyExc_TypeError, "function_forward(ctx, x, call, *params)");
        return NULL;
    }
    call *c = (call *)args[2];
    PyObject *saved = PyTuple_New(n - 2), *results = NULL;
    for (Py_ssize_t i = 0; saved && i < n - 2; i++)
        put(saved, i, new_reference(args[i ? i + 2 : 1]));
    if (saved && PyObject_SetAttr(args[0], s_to_save, saved) == 0 /* as save_for_backward */
        && PyObject_SetAttr(args[0], s_call, (PyObject *)c) == 0)
        results = forward_results(c, args[1], true);
    Py_XDECREF(saved);
    return results;
}

static bool calls_true(PyObject *function, PyObject *argument)
{
    return function != Py_None && is_true(PyObject_CallFunctionObjArgs(function, argument, NULL));
}

typedef struct gradients {
    float *x, *dy, *dx, *params[MAX_TENSORS];
    float *d_params[MAX_TENSORS]; /* NULL: not needed */
    double penalty;
} gradients;

static bool run_backward(const call *c, const gradients *g)
{
    const layer *l = c->layer;
    void *state[MAX_TENSORS];
    nm_error err;
    nm_status status;
    if (!state_memory(l, c->state, state)) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_RuntimeError, "norma.torch: a buffer changed before the backward pass");
        return false;
    }
    if (!lock(l))
        return false;
    load(l, (const float *const *)g->params, state);
    for (int i = 0; i < l->n_counters; i++)
        *l->counters[i] = c->counters[i];
    lib.zero_grads(l->norm);
    if ((int64_t)c->rows * l->width < MANY_ELEMENTS) {
        status = lib.backward(c->pass, g->x, g->dy, g->penalty, g->dx, &err);
    } else {
        Py_BEGIN_ALLOW_THREADS status = lib.backward(c->pass, g->x, g->dy, g->penalty, g->dx, &err);
        Py_END_ALLOW_THREADS
    }
    bool done = check(status, &err);
    if (done && c->training)
        store_vectors(l, state);
    for (int i = 0; done && i < l->n_params; i++)
        if (g->d_params[i])
            memcpy(g->d_params[i], l->params[i].grad, bytes_of(&l->params[i]));
    return unlock(l) && done;
}

/* (dx, None, *gradients of the parameters) */
static PyObject *backward_results(const call *c, PyObject *saved, PyObject *needed, PyObject *dy,
                                  double penalty)
{
    const layer *l = c->layer;
    gradients g = {.penalty = penalty};
    PyObject *inputs = PyTuple_New(1 + l->n_params), *results = PyTuple_New(2 + l->n_params), *gradient;
    PyObject *upstream = dense(dy, &g.dy);
    if (!inputs || !results || !upstream)
        goto fail;
    for (int i = 0; i <= l->n_params; i++) {
        PyObject *input = dense(PyTuple_GetItem(saved, i), i ? &g.params[i - 1] : &g.x);
        if (!input)
            goto fail;
        put(inputs, i, input);
        if (i && (!l->params[i - 1].grad || PyTuple_GetItem(needed, i + 1) != Py_True)) {
            put(results, i + 1, new_reference(Py_None));
            continue;
        }
        if (!(gradient = like(input, i ? &g.d_params[i - 1] : &g.dx)))
            goto fail;
        put(results, i ? i + 1 : 0, gradient);
    }
    put(results, 1, new_reference(Py_None));
    if (!run_backward(c, &g))
        goto fail;
    Py_DECREF(inputs);
    Py_DECREF(upstream);
    return results;
fail:
    Py_XDECREF(inputs);
    Py_XDECREF(upstream);
    Py_XDECREF(results);
    return NULL;
}

/* function_backward(ctx, dy[, gradient of the penalty]). With a graph of the backward pass, the formulas in
 * plain PyTorch. */
PyObject *function_backward(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
    (void)self;
    PyObject *found = n == 2 || n == 3 ? PyObject_GetAttr(args[0], s_call) : NULL;
    if (!found || Py_TYPE(found) != call_type) {
        Py_XDECREF(found);
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "function_backward(ctx, dy, d_penalty)");
        return NULL;
    }
    const call *c = (const call *)found;
    PyObject *results = NULL, *saved = NULL, *needed = NULL, *number = NULL;
    if (is_current(is_grad_enabled) || calls_true(is_wrapped, args[1]) || calls_true(is_batched, args[1])) {
        results =
            PyObject_CallFunctionObjArgs(by_formulas, args[0], args[1], n == 3 ? args[2] : Py_None, NULL);
        goto done;
    }
    if (n == 3 && args[2] != Py_None && !(number = PyNumber_Float(args[2])))
        goto done;
    saved = PyObject_GetAttr(args[0], s_saved_tensors);
    needed = saved ? PyObject_GetAttr(args[0], s_needs_input_grad) : NULL;
    if (needed && PyTuple_Size(saved) == 1 + c->layer->n_params)
        results = backward_results(c, saved, needed, args[1], number ? PyFloat_AsDouble(number) : 0);
done:
    if (!results && !PyErr_Occurred())
        PyErr_SetString(PyExc_RuntimeError, "norma.torch: the saved tensors of a norm changed");
    Py_DECREF(found);
    Py_XDECREF(saved);
    Py_XDECREF(needed);
    Py_XDECREF(number);
    return results;
}

static PyGetSetDef members[5] = {{"before", get_before, NULL, NULL, NULL}};

static PyType_Slot layer_slots[] = {
    {Py_tp_new, (void *)new_layer}, {Py_tp_dealloc, (void *)dealloc_layer}, {0, NULL}};
static PyType_Slot call_slots[] = {{Py_tp_dealloc, (void *)dealloc_call},
                                   {Py_tp_traverse, (void *)traverse_call},
                                   {Py_tp_clear, (void *)clear_call},
                                   {Py_tp_getset, members},
                                   {0, NULL}};
static PyType_Spec layer_spec = {"norma._calls.Layer", sizeof(layer), 0, Py_TPFLAGS_DEFAULT, layer_slots};
static PyType_Spec call_spec = {"norma._calls.Call", sizeof(call), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
                                call_slots};

bool create_types(void)
{
    members[1] = (PyGetSetDef){"training", get_member, NULL, NULL, s_training};
    members[2] = (PyGetSetDef){"state", get_member, NULL, NULL, s_state};
    members[3] = (PyGetSetDef){"module", get_member, NULL, NULL, NULL};
    layer_type = (PyTypeObject *)PyType_FromSpec(&layer_spec);
    call_type = (PyTypeObject *)PyType_FromSpec(&call_spec);
    return layer_type && call_type;
}
