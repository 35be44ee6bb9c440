/* norma._calls: the memory of tensors. Newer versions of PyTorch (seen in 2.15) describe a tensor by one call
 * of DLPack's exchange interface (dlpack.h, DLPackExchangeAPI); others by attributes of Python. */
#include "calls.h"

/* DLPack 1.x: the fields in their order */
typedef struct dl_tensor {
    char *data;
    int32_t device_type, device_id, n_axes;
    uint8_t code, bits;
    uint16_t lanes;
    const int64_t *shape, *strides;
    uint64_t byte_offset;
} dl_tensor;

typedef struct exchange_api {
    uint32_t major, minor;
    const struct exchange_api *older;
    void *allocator, *from_object, *to_object; /* functions that are not used */
    int (*describe)(void *tensor, dl_tensor *found);
} exchange_api;

enum { DL_CPU = 1, DL_INT = 0, DL_FLOAT = 2 };

static const exchange_api *api; /* NULL: there is none */

void use_exchange(void)
{
    api = exchange == Py_None ? NULL : PyCapsule_GetPointer(exchange, "dlpack_exchange_api");
    while (api && api->major > 1)
        api = api->older;
    if (api && (api->major != 1 || !api->describe))
        api = NULL;
    PyErr_Clear();
}

static bool is_contiguous(PyObject *tensor)
{
    return is_true(PyObject_CallMethodObjArgs(tensor, s_is_contiguous, NULL));
}

static void *address_of(PyObject *tensor)
{
    PyObject *found = PyObject_CallMethodObjArgs(tensor, s_data_ptr, NULL);
    void *address = found ? PyLong_AsVoidPtr(found) : NULL;
    Py_XDECREF(found);
    return address;
}

static bool describe(PyObject *tensor, PyObject *dtype, tensor_data *m)
{
    dl_tensor t;
    if (api->describe(tensor, &t) != 0 || t.device_type != DL_CPU || t.lanes != 1 ||
        t.code != (dtype == int64 ? DL_INT : DL_FLOAT) || t.bits != (dtype == int64 ? 64 : 32))
        return false;
    *m = (tensor_data){t.data + t.byte_offset, 1, t.n_axes ? t.shape[t.n_axes - 1] : 0};
    for (int32_t i = t.n_axes; i-- > 0;) {
        if (t.strides && t.shape[i] != 1 && t.strides[i] != m->elements)
            return false;
        m->elements *= t.shape[i];
    }
    return true;
}

/* By attributes and methods */
static bool inspect(PyObject *tensor, PyObject *dtype, tensor_data *m)
{
    if (!attribute_is(tensor, s_dtype, dtype) || !has_flag(tensor, s_is_cpu) || !is_contiguous(tensor) ||
        !(m->data = address_of(tensor)))
        return false;
    PyObject *shape = PyObject_GetAttr(tensor, s_shape);
    Py_ssize_t n = shape ? PyTuple_Size(shape) : -1;
    m->elements = 1, m->width = 0;
    for (Py_ssize_t i = 0; i < n; i++) {
        m->width = PyLong_AsLongLong(PyTuple_GetItem(shape, i));
        m->elements *= m->width;
    }
    Py_XDECREF(shape);
    return n >= 0;
}

bool memory_of(PyObject *tensor, PyObject *dtype, tensor_data *m)
{
    return is_plain_tensor(tensor) && (api ? describe(tensor, dtype, m) : inspect(tensor, dtype, m)) &&
           m->data;
}

static PyObject *with_memory(PyObject *tensor, const tensor_data *m, void *data) /* takes the reference */
{
    memcpy(data, &m->data, sizeof m->data);
    return tensor;
}

static PyObject *fail_dense(PyObject *tensor)
{
    Py_XDECREF(tensor);
    if (!PyErr_Occurred())
        PyErr_SetString(PyExc_RuntimeError, "norma.torch: a tensor is not float32 on the CPU");
    return NULL;
}

PyObject *dense(PyObject *tensor, void *data)
{
    tensor_data m;
    if (memory_of(tensor, float32, &m))
        return with_memory(new_reference(tensor), &m, data);
    PyErr_Clear();
    PyObject *found = PyObject_CallMethodObjArgs(tensor, s_contiguous, NULL);
    return found && inspect(found, float32, &m) ? with_memory(found, &m, data) : fail_dense(found);
}

PyObject *like(PyObject *tensor, void *data)
{
    tensor_data m;
    PyObject *found = PyObject_CallFunctionObjArgs(empty_like, tensor, NULL);
    return found && memory_of(found, float32, &m) ? with_memory(found, &m, data) : fail_dense(found);
}
