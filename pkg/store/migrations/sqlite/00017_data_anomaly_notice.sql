-- +goose Up

-- The notice about vulnerability data that loses too much has another name. Receivers that know of it under the former one are neither told
-- of it again nor that it is over. Inside of texts quotes are escaped, so only names and values are replaced.
UPDATE receivers SET state = CAST(replace(replace(replace(CAST(state AS TEXT),
    '"DataSuspect":{', '"DataAnomaly":{'), '"id":"DataSuspect"', '"id":"DataAnomaly"'), '"kind":"DataSuspect"', '"kind":"DataAnomaly"') AS BLOB)
WHERE instr(CAST(state AS TEXT), '"DataSuspect"') > 0;
