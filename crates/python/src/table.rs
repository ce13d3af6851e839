//! Arrow tables for any library that takes them.

use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{RecordBatch, RecordBatchIterator};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

/// An Arrow table: `pyarrow.table(t)` and `polars.DataFrame(t)` take it.
#[pyclass(frozen, module = "cpumax")]
pub struct Table(pub RecordBatch);

#[pymethods]
impl Table {
    /// Number of rows.
    fn __len__(&self) -> usize {
        self.0.num_rows()
    }

    /// Names of the columns.
    #[getter]
    fn column_names(&self) -> Vec<String> {
        self.0.schema().fields().iter().map(|field| field.name().clone()).collect()
    }

    /// The table as an Arrow stream of one batch. It shares the memory. `requested_schema` is not
    /// looked at: readers convert types themselves.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Py<PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        drop(requested_schema);
        let batches = RecordBatchIterator::new([Ok(self.0.clone())], self.0.schema());
        let stream = FFI_ArrowArrayStream::new(Box::new(batches));
        PyCapsule::new(py, stream, Some(c"arrow_array_stream".to_owned()))
    }
}
