package @NAME@;
# Greets params.name.
use strict;
use warnings;

our $VERSION = '0.1.0';

# Is given workerthread, which leads to the log, the configuration and the database, and task, the task's document.
sub new {
    my ($class, %self) = @_;
    return bless \%self, $class;
}

# Returns what becomes of the task: status is 1 for success and 2 for failure.
sub run {
    my ($self) = @_;
    my $name = $self->{task}{params}{name} // 'world';
    return { status => 1, stdout => "Hello $name\n", stderr => undef };
}

1;
