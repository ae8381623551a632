package scenario

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// CatalogJobs selects the operator's catalog Jobs.
const CatalogJobs = "app.kubernetes.io/managed-by=scanner-operator,app.kubernetes.io/component=catalog"

// JobLog records every catalog Job. Finished Jobs are deleted, so only a watch sees them all.
type JobLog struct {
	mu   sync.Mutex
	seen map[string]CatalogJob
}

// CatalogJob is a Job that catalogs an image.
type CatalogJob struct {
	Namespace, Name string
	// Images are the references by which the Job may pull the image.
	Images []string
}

// watchJobs returns a log that is updated until the context ends.
func watchJobs(ctx context.Context, clientset kubernetes.Interface) (*JobLog, error) {
	log := &JobLog{seen: map[string]CatalogJob{}}
	factory := informers.NewSharedInformerFactoryWithOptions(clientset, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.LabelSelector = CatalogJobs
	}))
	informer := factory.Batch().V1().Jobs().Informer()
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: log.add}); err != nil {
		return nil, err
	}
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return nil, errors.New("the cluster does not list Jobs: is KUBECONFIG right?")
	}
	return log, nil
}

func (l *JobLog) add(o any) {
	job, ok := o.(*batchv1.Job)
	if !ok || len(job.Spec.Template.Spec.Containers) == 0 {
		return
	}
	seen := CatalogJob{Namespace: job.Namespace, Name: job.Name}
	args := job.Spec.Template.Spec.Containers[0].Args
	for i := 1; i < len(args); i++ {
		if args[i-1] == "--image" {
			seen.Images = append(seen.Images, args[i])
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen[string(job.UID)] = seen
}

// All returns all Jobs so far, sorted by name.
func (l *JobLog) All() []CatalogJob {
	l.mu.Lock()
	defer l.mu.Unlock()
	jobs := make([]CatalogJob, 0, len(l.seen))
	for _, job := range l.seen {
		jobs = append(jobs, job)
	}
	slices.SortFunc(jobs, func(a, b CatalogJob) int { return strings.Compare(a.Name, b.Name) })
	return jobs
}

// Of returns the Jobs for images of a repository.
func (l *JobLog) Of(repository string) []CatalogJob {
	return slices.DeleteFunc(l.All(), func(job CatalogJob) bool {
		return !slices.ContainsFunc(job.Images, func(image string) bool { return strings.HasPrefix(image, repository+"@") })
	})
}

// String returns the Job's name and its image references.
func (j CatalogJob) String() string {
	return fmt.Sprintf("%s/%s (%s)", j.Namespace, j.Name, strings.Join(j.Images, ", "))
}
