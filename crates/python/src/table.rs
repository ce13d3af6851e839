//! Arrow tables for any library that takes them. Columns have the names and units of the command's
//! CSV and JSON.

mod events;
mod recording;
mod study;

pub use events::events;
pub use recording::{requests, threads};
pub use study::{histograms, study};

use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::types::{ArrowPrimitiveType, Int32Type};
use arrow_array::{
    ArrayRef, DictionaryArray, PrimitiveArray, RecordBatch, RecordBatchIterator, StringArray,
};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use std::sync::Arc;

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

/// Names by their places in a list, which the column has once; places beyond it are null.
fn named(places: impl Iterator<Item = Option<u32>> + Clone, names: &[impl AsRef<str>]) -> ArrayRef {
    let of_list = |at: u32| ((at as usize) < names.len()).then_some(at as i32);
    let places = optional::<Int32Type>(places.map(|at| at.and_then(of_list)));
    Arc::new(DictionaryArray::new(places, Arc::new(StringArray::from_iter_values(names))))
}

/// Numbers, of which some are null. Two short loops are faster than arrow's one.
fn optional<T: ArrowPrimitiveType>(
    all: impl Iterator<Item = Option<T::Native>> + Clone,
) -> PrimitiveArray<T> {
    let known: Vec<bool> = all.clone().map(|one| one.is_some()).collect();
    let values: Vec<T::Native> = all.map(Option::unwrap_or_default).collect();
    PrimitiveArray::new(values.into(), Some(known.into()))
}

/// The batch of these columns, all of one length.
fn batch<'a>(columns: impl IntoIterator<Item = (&'a str, ArrayRef)>) -> RecordBatch {
    let columns = columns.into_iter().map(|(name, column)| (name, column, true));
    let made = RecordBatch::try_from_iter_with_nullable(columns);
    made.expect("columns of one table have one length")
}
