/* Parts of norma._calls (calls.c): the objects that it uses, its types, tensors. */
#ifndef NORMA_CALLS_H
#define NORMA_CALLS_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x03090000
#include <Python.h>
#include <string.h>

#include "norma/norm.h"

#ifndef METH_FASTCALL
#define METH_FASTCALL 0x0080 /* stable since 3.7, declared as such since 3.10 */
#endif

enum { MAX_TENSORS = 16 };
/* Elements of x from which other threads may run Python during a kernel */
enum { MANY_ELEMENTS = 1 << 14 };

/* clang-format off */
/* Objects of PyTorch and of norma.torch */
#define OBJECTS(O) \
    O(tensor_type) O(parameter_type) O(float32) O(int64) O(empty_like) O(is_grad_enabled) O(get_num_threads) \
    O(tracing_state) O(transforms) O(is_wrapped) O(is_batched) O(forward_levels) O(apply) O(by_formulas) \
    O(raise_error) O(warn_recomputed) O(exchange)

/* Names of attributes and methods */
#define NAMES(N) \
    N(dtype) N(is_cpu) N(is_contiguous) N(contiguous) N(data_ptr) N(shape) N(requires_grad) \
    N(saved_tensors) N(to_save) N(needs_input_grad) N(call) N(acquire) N(release) N(acquire_pass) N(handle) \
    N(new_empty) N(training) N(kernel) N(process) N(state) N(__dict__) N(_padding_mask) N(_model_mask) \
    N(_statistics) N(_attributes) N(_offset) N(_names) N(_parameters) N(_buffers) N(_calls) N(_penalty) \
    N(_current_level)
/* clang-format on */
/* What setup() gives; the names are interned strings, s_NAME. */
#define DECLARE(name)      extern PyObject *name;
#define DECLARE_NAME(name) extern PyObject *s_##name;
OBJECTS(DECLARE)
NAMES(DECLARE_NAME)
#undef DECLARE
#undef DECLARE_NAME

typedef struct calls_library { /* functions of the library */
    nm_status (*forward)(nm_norm_pass *, int32_t, const void *, void *, nm_error *);
    nm_status (*infer)(nm_norm_pass *, int32_t, const void *, void *, nm_error *);
    nm_status (*backward)(nm_norm_pass *, const void *, const void *, double, void *, nm_error *);
    double (*penalty)(const nm_norm_pass *);
    void (*zero_grads)(nm_norm *);
} calls_library;
extern calls_library lib;

typedef struct vector {
    float *memory, *grad; /* of the layer; grad NULL: none */
    int64_t length;
} vector;

typedef struct layer {
    PyObject ob_base;
    nm_norm *norm;
    PyObject *owner, *passes, *lock; /* norma._norms.Layer, its free passes, the lock of its backend */
    int32_t width;
    int n_params, n_state, n_counters;
    bool has_penalty;
    vector params[MAX_TENSORS], state[MAX_TENSORS];
    int64_t *counters[MAX_TENSORS];
} layer;

/* A forward pass. Its pass belongs to it, and returns to the layer with the graph. */
typedef struct call {
    PyObject ob_base;
    layer *layer;
    PyObject *module, *pass_object, *state; /* state: a tuple of tensors, those of this call */
    nm_norm_pass *pass;
    bool training;
    int32_t rows;
    int64_t counters[MAX_TENSORS]; /* after the forward pass */
    PyObject *before;              /* bytes: the state before a forward pass in training mode */
    const float *x, *params[MAX_TENSORS];
    void *state_memory[MAX_TENSORS]; /* of the tensors, in the forward pass */
} call;

/* A contiguous tensor of the CPU */
typedef struct tensor_data {
    void *data;
    int64_t elements, width; /* width: of the last axis; 0: there is none */
} tensor_data;

/* Takes exchange, DLPack's interface of PyTorch, or None: it has none. */
void use_exchange(void);
/* The memory of a contiguous tensor of the CPU and of the type, float32 or int64; false: it is another one. A
 * sparse tensor, and a tensor that represents others in a transform, have no address: the exception is left
 * to the caller. */
bool memory_of(PyObject *tensor, PyObject *dtype, tensor_data *m);
/* The tensor itself, or a contiguous copy, float32 on the CPU: a new reference; NULL: an exception. data: the
 * place of its address. */
PyObject *dense(PyObject *tensor, void *data);
/* A new tensor of the shape of a contiguous one, as dense() */
PyObject *like(PyObject *tensor, void *data);

extern PyTypeObject *layer_type, *call_type;
bool create_types(void); /* false: an exception */

/* Gives a call a free pass of its layer; false: an exception. */
bool take_pass(call *c);
/* The addresses of the tensors of the state; false, perhaps with an exception: one of them does not fit. */
bool state_memory(const layer *l, PyObject *state, void **addresses);
/* y, or (y, penalty), of a call with a pass and the memory of x, parameters and state. keeps_before: for a
 * backward pass */
PyObject *forward_results(call *c, PyObject *x, bool keeps_before);
/* Of the torch.autograd.Function */
PyObject *function_forward(PyObject *self, PyObject *const *args, Py_ssize_t n);
PyObject *function_backward(PyObject *self, PyObject *const *args, Py_ssize_t n);

static inline PyObject *new_reference(PyObject *object)
{
    Py_INCREF(object);
    return object;
}

static inline void put(PyObject *tuple, Py_ssize_t place, PyObject *item) /* takes the reference */
{
    PyTuple_SetItem(tuple, place, item);
}

static inline bool is_true(PyObject *given) /* takes the reference */
{
    bool yes = given && PyObject_IsTrue(given) == 1;
    Py_XDECREF(given);
    return yes;
}

static inline bool attribute_is(PyObject *object, PyObject *name, PyObject *expected)
{
    PyObject *found = PyObject_GetAttr(object, name);
    Py_XDECREF(found);
    return found == expected;
}

static inline bool has_flag(PyObject *object, PyObject *name)
{
    return is_true(PyObject_GetAttr(object, name));
}

static inline bool is_plain_tensor(PyObject *object)
{
    PyObject *type = object ? (PyObject *)Py_TYPE(object) : NULL;
    return type && (type == tensor_type || type == parameter_type);
}

static inline bool is_current(PyObject *function) /* a state of PyTorch; None: this version has none */
{
    return function != Py_None && is_true(PyObject_CallObject(function, NULL));
}

#endif
