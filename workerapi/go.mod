module github.com/scanner-operator/scanner-operator/workerapi

go 1.26.0
