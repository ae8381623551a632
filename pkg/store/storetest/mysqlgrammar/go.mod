// The module that checks the statements with a parser of MySQL's grammar: its libraries are no part of the operator.
module github.com/scanner-operator/scanner-operator/pkg/store/storetest/mysqlgrammar

go 1.26.0

require (
	github.com/dolthub/vitess v0.0.0-20260422060906-f6f5b5573b7b
	github.com/scanner-operator/scanner-operator v0.0.0
)

require (
	golang.org/x/sys v0.49.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20261005182115-fad411399dd8 // indirect
	google.golang.org/grpc v1.84.0 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
)

replace (
	github.com/scanner-operator/scanner-operator => ../../../..
	github.com/scanner-operator/scanner-operator/registry => ../../../../registry
	github.com/scanner-operator/scanner-operator/workerapi => ../../../../workerapi
)
