// Package limits shares what a server has between those who use it: slots of a pool, connections, and rates. It promises that the cost of one tenant
// does not fall on others. It knows neither tokens nor permissions; a tenant is a text that its caller chooses.
//
// Every limit is that of one process. Of several replicas, each has its own.
package limits
