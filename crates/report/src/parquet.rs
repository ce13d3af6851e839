//! A study as a Parquet file: the rows of the CSV in one row group, not compressed.

use crate::columns::{Column, columns};
use cpumax_forecast::saved::Saved;
use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::data_type::{BoolType, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::Result;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::{Type, TypePtr};
use std::io;
use std::sync::Arc;

/// The bytes of the file.
///
/// # Errors
/// The table cannot be encoded.
pub fn parquet(study: &Saved) -> io::Result<Vec<u8>> {
    encoded(&columns(study)).map_err(io::Error::other)
}

fn encoded(columns: &[(String, Column)]) -> Result<Vec<u8>> {
    let fields = columns.iter().map(|(name, column)| field(name, column));
    let schema = Type::group_type_builder("study").with_fields(fields.collect::<Result<_>>()?);
    let mut out = Vec::new();
    let schema = Arc::new(schema.build()?);
    let mut file = SerializedFileWriter::new(&mut out, schema, Arc::default())?;
    let mut rows = file.next_row_group()?;
    for (_, column) in columns {
        let Some(mut to) = rows.next_column()? else { break };
        match column {
            Column::Text(all) => put::<ByteArrayType, _>(&mut to, all, |t| t.as_str().into())?,
            Column::Whole(all) => put::<Int64Type, _>(&mut to, all, |whole| *whole as i64)?,
            Column::Number(all) => put::<DoubleType, _>(&mut to, all, |number| *number)?,
            Column::Flag(all) => put::<BoolType, _>(&mut to, all, |flag| *flag)?,
        }
        to.close()?;
    }
    rows.close()?;
    file.close()?;
    Ok(out)
}

fn field(name: &str, column: &Column) -> Result<TypePtr> {
    let (physical, logical) = match column {
        Column::Text(_) => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        Column::Whole(_) => (Physical::INT64, Some(LogicalType::integer(64, false))),
        Column::Number(_) => (Physical::DOUBLE, None),
        Column::Flag(_) => (Physical::BOOLEAN, None),
    };
    let field = Type::primitive_type_builder(name, physical).with_logical_type(logical);
    Ok(Arc::new(field.with_repetition(Repetition::OPTIONAL).build()?))
}

/// Writes a column: the values, and for each row whether it has one.
fn put<P: DataType, T>(
    to: &mut SerializedColumnWriter<'_>,
    all: &[Option<T>],
    value: impl Fn(&T) -> P::T,
) -> Result<()> {
    let values: Vec<P::T> = all.iter().flatten().map(value).collect();
    let has_value: Vec<i16> = all.iter().map(|one| one.is_some().into()).collect();
    to.typed::<P>().write_batch(&values, Some(&has_value), None)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use std::io::Write;

    #[test]
    fn the_rows_are_those_that_are_read() {
        let columns = [
            ("name".to_owned(), Column::Text(vec![Some("a,b".to_owned()), None])),
            ("ns".to_owned(), Column::Whole(vec![None, Some(u64::MAX)])),
            ("cpus".to_owned(), Column::Number(vec![Some(0.5), None])),
            ("is_so".to_owned(), Column::Flag(vec![Some(true), Some(false)])),
        ];
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&encoded(&columns).unwrap()).unwrap();
        let file = SerializedFileReader::new(file).unwrap();
        let rows = file.get_row_iter(None).unwrap().map(|row| row.unwrap().to_string());
        assert_eq!(
            rows.collect::<Vec<_>>(),
            [
                "{name: \"a,b\", ns: null, cpus: 0.5, is_so: true}",
                "{name: null, ns: 18446744073709551615, cpus: null, is_so: false}",
            ]
        );
    }
}
