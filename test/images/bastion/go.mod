// The program of the tests' image test/bastion. Its module is old on purpose: the versions of that time have no tag, and
// neither have the fixes of its known vulnerabilities. Nothing else uses it.
module example.org/test/bastion

go 1.26.0

require golang.org/x/crypto v0.0.0-20210921155107-089bfa567519

require golang.org/x/sys v0.0.0-20210615035016-665e8c7367d1 // indirect
