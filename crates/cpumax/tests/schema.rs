//! The JSON Schemas in `docs/schema/` match the types that are written. `SNAPSHOTS=overwrite`
//! writes them anew.

use cpumax_compare::Cell;
use cpumax_forecast::{
    advise::Advised, recorded::Inspected, replay::ReplayDocument, verify::Verified,
    weigh::WeightDocument,
};
use cpumax_observed::{counted::Counted, fleet::InFleet, scheduler::GroupStat};
use cpumax_study::{
    ReportDocument, Study,
    answer::Document,
    builtin::Listed,
    kernels::{Alike, Real},
    scenario, world,
};
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
    assert_kept("fleet.json", &schema::<Document<InFleet>>());
    assert_kept("stat.json", &schema::<GroupStat>());
    let inspected = serde_json::to_value(schema_for!(Inspected)).unwrap();
    assert_kept("inspect.json", &inspected);
}

#[test]
fn a_schema_has_every_field_that_is_written() {
    let jobs = Study::new(scenario::load("nested").unwrap()).jobs();
    let reports = world::all(&cpumax_study::Model::default(), &jobs, &()).unwrap();
    let written = serde_json::to_value(reports[0].document()).unwrap();
    let schema = serde_json::to_value(schema_for!(Document<ReportDocument<'_>>)).unwrap();
    for name in written.as_object().unwrap().keys() {
        assert!(schema["properties"].get(name).is_some(), "{name} is not in {schema}");
    }
}
