//! The JSON Schemas in `docs/schema/` match the types that are written. `SNAPSHOTS=overwrite`
//! writes them anew.

use cpumax_compare::Cell;
use cpumax_engine::advise::Advised;
use cpumax_engine::answer::Document;
use cpumax_engine::builtin::Listed;
use cpumax_engine::counted::Counted;
use cpumax_engine::kernels::{Alike, Real};
use cpumax_engine::recorded::Inspected;
use cpumax_engine::replay::ReplayDocument;
use cpumax_engine::scheduler::GroupStat;
use cpumax_engine::verify::Verified;
use cpumax_engine::weigh::WeightDocument;
use cpumax_engine::{ReportDocument, Study, scenario, world};
use schemars::{JsonSchema, schema_for};
use serde_json::Value;
use snapbox::{Data, assert_data_eq};
use std::path::Path;

/// Schema of an array of these; all documents but that of a recording are arrays.
fn schema<T: JsonSchema>() -> Value {
    serde_json::to_value(schema_for!(Vec<T>)).unwrap()
}

fn assert_kept(name: &str, schema: &Value) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schema");
    let text = serde_json::to_string_pretty(schema).unwrap() + "\n";
    assert_data_eq!(text, Data::read_from(&folder.join(name), None).raw());
}

#[test]
fn the_schemas_that_are_kept_are_those_of_the_types() {
    assert_kept("run.json", &schema::<Document<ReportDocument<'_>>>());
    assert_kept("replay.json", &schema::<ReplayDocument<'_>>());
    assert_kept("advise.json", &schema::<Document<Advised>>());
    assert_kept("compare.json", &schema::<Cell>());
    assert_kept("kernels.json", &schema::<Alike>());
    assert_kept("lab-list.json", &schema::<Real>());
    assert_kept("scenarios.json", &schema::<Listed>());
    assert_kept("weigh.json", &schema::<Document<WeightDocument<'_>>>());
    assert_kept("verify.json", &schema::<Document<Verified>>());
    assert_kept("counted.json", &schema::<Document<Counted>>());
    assert_kept("stat.json", &schema::<GroupStat>());
    let inspected = serde_json::to_value(schema_for!(Inspected)).unwrap();
    assert_kept("inspect.json", &inspected);
}

#[test]
fn a_schema_has_every_field_that_is_written() {
    let jobs = Study::new(scenario::load("nested").unwrap()).jobs();
    let reports = world::all(&cpumax_engine::Model::default(), &jobs, &()).unwrap();
    let written = serde_json::to_value(reports[0].document()).unwrap();
    let schema = serde_json::to_value(schema_for!(Document<ReportDocument<'_>>)).unwrap();
    for name in written.as_object().unwrap().keys() {
        assert!(schema["properties"].get(name).is_some(), "{name} is not in {schema}");
    }
}
